"""The Spark session that a function works in."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ordstream.errors import PlanError, shown


def running_session(spark: Any, needed_by: str) -> SparkSession:
    """The session that was given, or the active one, or that of the process: another thread has none that is
    active, and behind Ctrl-C in a call of Java's a thread has lost it.

    Parameters
    ----------
    spark : SparkSession or None
        Of Spark Connect as well.
    needed_by : str
        What needs it.

    Raises
    ------
    PlanError
        There is none, or this is none.
    """
    try:
        session = SparkSession.active() if spark is None else spark
    except PySparkException as error:
        raise PlanError(
            f"{needed_by} needs a Spark session: start one (od.spark.local_session())"
        ) from error
    except Exception as error:  # py4j's, which Spark Connect's client has not
        raise PlanError(
            f"{needed_by} needs a Spark session, and Spark's Java process has ended: start Python again"
        ) from error
    if not (hasattr(session, "createDataFrame") and hasattr(session, "conf")):
        raise PlanError(f"spark must be a SparkSession, got {shown(session)}")
    return session
