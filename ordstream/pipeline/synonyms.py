"""What other systems call the methods of a pipeline, for the error text when one of their names is tried
here.

People come from PySpark, Polars, pandas, Flink: the name they know should lead to the one that is meant.
"""

from __future__ import annotations

_ELSEWHERE = {
    "filter": "where query",
    "with_columns": "withColumn withColumns with_column assign mutate",
    "rename": "withColumnRenamed withColumnsRenamed",
    "drop": "dropColumns drop_columns",
    "key_by": "keyBy groupBy group_by groupby partition_by partitionBy",
    "aggregate": "agg",
    "aggregate, scan or process": "reduce fold",
    "scan": "cumulate",
    "cum_sum": "cumsum",
    "cum_count": "cumcount row_number",
    "cum_min": "cummin",
    "cum_max": "cummax",
    "deduplicate": "drop_duplicates dropDuplicates dropDuplicatesWithinWatermark unique distinct",
    "head": "limit first_n",
    "tail": "last_n",
    "lag": "shift",
    "window(od.tumbling(...), time=...).aggregate(...)": "tumbling_window group_by_dynamic",
    "window(od.rolling(...), time=...).aggregate(...)": "rolling",
    "sessionize": "session session_window",
    "process": "applyInPandas apply_in_pandas transformWithState stateful_map map_groups",
    "flat_map": "flatMap",
    "flat_map(od.explode(column, carry=[...]))": "explode",
    "map": "apply map_elements map_rows",
    "map_batches": "mapInArrow mapInPandas map_in_arrow mapPartitions map_partitions",
    "run(data), or stream(data)": (
        "collect execute compute start to_arrow toArrow toPandas to_pandas to_polars show write"
    ),
}

#: Another system's name -> what to write here.
SYNONYMS = {
    name: f"here it is called {ours}" for ours, names in _ELSEWHERE.items() for name in names.split()
}
SYNONYMS |= dict.fromkeys(
    ("sort", "sort_by", "sort_values", "orderBy", "order_by", "sortBy"),
    "a pipeline keeps the order of its source: sort the source (assert_ordered checks it), or take the "
    "largest rows with top_k",
)
SYNONYMS |= dict.fromkeys(
    ("join", "merge", "lookup", "join_where", "merge_asof"),
    "there are join_lookup(table, on=...) for a table that stays as it is, and for another pipeline "
    "join_interval(other, on=..., within=(least, most)) and join_asof(other, on=...)",
)
SYNONYMS |= dict.fromkeys(
    ("union", "unionByName", "concat"), "pipelines of one source are united by od.union(a, b)"
)

#: What to write where other systems would have an operator behind `key_by`.
IN_FRONT = {
    "deduplicate": "the key is among the columns of deduplicate: pipeline.deduplicate([key, ...])",
    "run": "say first what is kept by key, such as key_by(...).count()",
    "stream": "say first what is kept by key, such as key_by(...).count()",
}


def advice(attribute: str) -> str:
    """What to write instead of a name of another system, with a separator in front; empty for other
    names.
    """
    return f": {SYNONYMS[attribute]}" if attribute in SYNONYMS else ""
