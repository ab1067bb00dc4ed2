"""An epoch's figures by what Spark tells of its micro-batch: for Spark's own listeners, whose events have no
place for them.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from weakref import WeakValueDictionary

from ordstream.errors import PlanError

Reports = deque[dict[str, Any]]

_told: WeakValueDictionary[str, Reports] = WeakValueDictionary()  # by Spark's id of the query


def tell(query: str, reports: Reports) -> None:
    """Where the figures of a query's epochs are, as long as somebody holds them."""
    _told[query] = reports


def epoch_figures(event: Any) -> dict[str, Any] | None:
    """The figures that `on_epoch` is called with, of the micro-batch that Spark tells of.

    Spark calls its listeners (`spark.streams.addListener`) behind the commit, so the figures are there.

    Parameters
    ----------
    event : QueryProgressEvent, StreamingQueryProgress or dict
        What `onQueryProgress` is called with, its `progress`, or the latter as a dict.

    Returns
    -------
    dict or None
        None: the query is none of `od.spark.stream` in this process, the micro-batch had nothing to commit,
        or a hundred epochs have been committed since.

    Raises
    ------
    PlanError
        It tells of no micro-batch.
    """
    progress = getattr(event, "progress", event)
    try:
        if isinstance(progress, dict):
            query, number = progress["id"], progress["batchId"]
        else:
            query, number = progress.id, progress.batchId
    except (AttributeError, KeyError) as error:
        raise PlanError(
            "epoch_figures takes the event that Spark calls onQueryProgress(event) with, or its progress, "
            f"got {type(event).__name__}"
        ) from error
    told = _told.get(str(query), ())
    return next((dict(one) for one in told if one["epoch"] == number), None)
