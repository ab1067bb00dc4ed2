"""Ordered nodes inside Spark executors.

`apply` runs a pipeline over a DataFrame in a total order. `local_session` starts a quiet Spark on this
machine in which one task, and so one node, holds all cores. Modules: `session`, `batch` (apply), `executor`
(what runs in a task), `progress` (what the nodes tell the driver).
"""

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("ordstream.spark needs PySpark 4.1 or newer: pip install 'ordstream[spark]'") from error

from ordstream.spark.batch import apply, node_function, spark_schema
from ordstream.spark.executor import NodeFunction
from ordstream.spark.progress import Channel, TaskKey
from ordstream.spark.session import local_session

__all__ = ["Channel", "NodeFunction", "TaskKey", "apply", "local_session", "node_function", "spark_schema"]
