"""Windowed: a pipeline between `.window(...)` and the aggregations over its windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.choices import is_one_of
from ordstream.ground.duration import Duration
from ordstream.ground.types import column_index
from ordstream.operators.aggregation import Aggregation
from ordstream.operators.error_policy import OnError
from ordstream.operators.fill_gaps import FillGaps, reach_of
from ordstream.operators.operator import Operator, Site
from ordstream.operators.rolling import Rolling
from ordstream.operators.window import Window
from ordstream.operators.window_kinds import WindowKind
from ordstream.pipeline.synonyms import of_a_window

if TYPE_CHECKING:
    from ordstream.pipeline.pipeline import Pipeline


class Windowed:
    """What `.window(...)` returns: it waits for `aggregate`."""

    def __init__(
        self,
        kind: WindowKind,
        time: str | None,
        schema: pa.Schema,
        site: Callable[[str, str | None, OnError], Site],
        aggregated: Callable[..., Pipeline],
        fill_gaps: bool | Duration = False,
    ) -> None:
        if not isinstance(kind, WindowKind):
            raise PlanError(
                "window takes od.tumbling(...), od.hopping(...), od.calendar(...), od.session(...), "
                f"od.rolling(...) or od.rows(...), got {kind!r}"
            )
        self._kind, self._time = kind, time
        fills = fill_gaps is not False and fill_gaps is not None
        if fills and kind.kind in ("session", "rolling", "rows"):
            raise PlanError(
                "window: fill_gaps is for windows that begin at fixed times, od.tumbling, od.hopping and "
                f"od.calendar: od.{kind.kind} has none that is empty"
            )
        self._site, self._aggregated, self._fills = site, aggregated, fills
        self._longest = None if isinstance(fill_gaps, bool) else fill_gaps
        _check(kind, time, self._longest, schema)

    def aggregate(
        self,
        *named: Aggregation,
        emit: Literal["close", "updates", "both"] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        **aggregations: Aggregation,
    ) -> Pipeline:
        """Aggregations over each window.

        Output of tumbling and hopping windows and sessions: key columns, `start`, `end`, then these; with
        emit="both" then `closed`. Of windows per row (`rolling`, `rows`): input columns, then these.

        Parameters
        ----------
        *named, **aggregations : Aggregation
            `total=od.sum("x")`, or `od.sum("x").alias("name")` where the name can't be a keyword. Of a
            column or an expression: `od.sum(od.col("x") * 2)`.
        emit : "close", "updates" or "both"
            "close" (the default): a row when the window closes, at a mark of the clock by (end, key), at the
            end of the stream by key. "updates": a row per tuple with the values that include it. "both":
            `closed` tells them apart. Windows per row have a row per tuple, and no `emit`.
        """
        if self._kind.slides:
            site = self._site("rolling", name, on_error)
            if emit is not None and not is_one_of(emit, ("updates",)):
                raise PlanError(
                    f"{site.name}: od.{self._kind.kind} has a window per row and takes no emit, got {emit!r}"
                )
            return self._aggregated(site, self._rolling, named, aggregations)
        site = self._site("window", name, on_error)
        chosen: Any = "close" if emit is None else emit
        made = self._aggregated(site, partial(self._window, emit=chosen), named, aggregations)
        if not self._fills:
            return made
        return made._then(FillGaps.behind(made.plan.operators[-1], site, self._longest))

    def _rolling(self, site: Site, named: Sequence[Any], keywords: Mapping[str, Any]) -> Operator:
        return Rolling.bind(site, self._kind, self._time, named, keywords)

    def _window(self, site: Site, named: Sequence[Any], keywords: Mapping[str, Any], emit: Any) -> Operator:
        return Window.bind(site, self._kind, self._time, named, keywords, emit)

    def __repr__(self) -> str:
        return f"<Windowed {self._kind.kind}; next: aggregate>"

    if not TYPE_CHECKING:  # for a type checker an unknown attribute is a mistake

        def __getattr__(self, attribute: str) -> NoReturn:
            where = "" if attribute.startswith("_") else f": write {of_a_window(attribute)}"
            raise AttributeError(f"a window has no {attribute!r}{where}", name=attribute, obj=self)


def _check(kind: WindowKind, time: str | None, longest: Duration | None, schema: pa.Schema) -> None:
    """PlanError and SchemaError for what `aggregate` would refuse, before it is written."""
    field = None if time is None else schema.field(column_index(schema, time, "window"))
    if kind.bind(field, "window").kind == "rows" and field is not None:
        raise PlanError("window: od.rows counts rows and looks at no time; leave time= out")
    if longest is not None and field is not None:
        reach_of(longest, field, "window")
