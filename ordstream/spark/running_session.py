"""The Spark session that a function works in."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from ordstream.errors import PlanError, shown


def running_session(spark: Any, needed_by: str) -> SparkSession:
    """The session that was given, or the active one.

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
    session = SparkSession.getActiveSession() if spark is None else spark
    if session is None:
        raise PlanError(f"{needed_by} needs a Spark session: start one (od.spark.local_session())")
    if not (hasattr(session, "createDataFrame") and hasattr(session, "conf")):
        raise PlanError(f"spark must be a SparkSession, got {shown(session)}")
    return session
