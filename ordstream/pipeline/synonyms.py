"""What other systems call the methods of a pipeline, for the error text when one of their names is tried
here.

People come from PySpark, Polars, pandas, Flink: the name they know should lead to the one that is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ordstream.errors import meant

_ELSEWHERE = {
    "filter": "where query",
    "with_columns": "withColumn withColumns with_column assign mutate",
    "rename": "withColumnRenamed withColumnsRenamed",
    "drop": "dropColumns drop_columns",
    "key_by": "keyBy groupBy group_by groupby partition_by partitionBy selectKey",
    "aggregate": "agg",
    "aggregate, scan or process": "reduce fold",
    "key_by(...).aggregate(...)": "reduceByKey groupByKey",
    "select": "selectExpr",
    "with_columns, or map with a function": "mapValues",
    "forward_fill": "ffill",
    "head, or filter before": "slice",
    "top_k(k, by=column), the smallest with descending=False": "nlargest nsmallest bottom_k",
    "lag({'before': column}), then with_columns(change=od.col(column) / od.col('before') - 1)": "pct_change",
    "top_k(...), or cum_count()": "rank dense_rank",
    "scan, lag or a window(...) behind key_by": "over transform",
    "window(od.rows(n)).aggregate(m=od.mean(column))": (
        "rolling_mean rolling_sum rolling_min rolling_max rolling_std rowsBetween"
    ),
    "with_columns(name=od.col(name).fill_null(value))": "fill_null fillna",
    "with_columns(name=od.col(name).fill_nan(value))": "fill_nan",
    "a run of several sources with merge_by=": "merge_sorted",
    "with_columns(name=od.col(name).cast(type))": "cast astype",
    "filter(od.col(name).is_not_null())": "drop_nulls dropna",
    "filter(condition) and select(columns); rows have no labels": "loc iloc at iat set_index reset_index",
    "with_columns(name=od.col(name).is_null())": "isna isnull is_null",
    "with_columns(name=od.when(condition).then(value).otherwise(od.col(name)))": "replace mask",
    "aggregate with od.count, od.mean, od.std, od.min, od.quantile and od.max": "describe summary",
    "rename, all names at once": "toDF set_axis",
    "run(data).table, which stays; a pipeline holds no rows": "cache persist checkpoint shape height",
    "run(data, workers=, processes=), or od.spark.apply(..., nodes=)": (
        "repartition coalesce parallelize parallelism set_parallelism setParallelism"
    ),
    "inspect(print)": "peek print",
    "reorder(time, slack=...)": (
        "watermark withWatermark with_watermark assign_timestamps_and_watermarks "
        "assignTimestampsAndWatermarks"
    ),
    "reorder(time, slack=..., late=...)": "allowed_lateness allowedLateness",
    "emit='final' of an aggregation; a window says nothing before it closes, unless emit= asks for it": (
        "suppress"
    ),
    "join_interval": "interval_join intervalJoin",
    "len(pipeline.schema)": "width",
    "schema": "columns dtypes print_schema printSchema",
    "scan": "accumulate cumulate expanding",
    "cum_sum": "cumsum",
    "cum_count": (
        "cumcount row_number with_row_index with_row_count zipWithIndex monotonically_increasing_id"
    ),
    "cum_min": "cummin",
    "cum_max": "cummax",
    "deduplicate": (
        "dedup dedupe drop_duplicates dropDuplicates dropDuplicatesWithinWatermark unique distinct"
    ),
    "head": "limit first_n take",
    "cum_count('n'), then filter(od.col('n') == n)": "nth",
    "tail": "last_n",
    "lag": "shift",
    "window(od.tumbling(...), time=...).aggregate(...)": (
        "tumbling_window group_by_dynamic resample windowedBy windowed_by timeWindow tumble hop cumulate"
    ),
    "window(od.rolling(...), time=...).aggregate(...)": "rolling rangeBetween",
    "sessionize": "session session_window",
    "process": "applyInPandas apply_in_pandas transformWithState stateful_map map_groups",
    "flat_map": "flatMap flatMapValues",
    "flat_map(od.explode(column, carry=[...]))": "explode",
    "map": "apply map_elements map_rows",
    "process, which keeps the value so far in its state": "cum_prod cumprod ewm ewm_mean",
    "window(od.tumbling(...), time=..., fill_gaps=True), which gives empty windows": "upsample asfreq",
    "process, which keeps the rows without a value until the next one": "interpolate bfill backward_fill",
    "process with on_flush, which sees all rows of a key": "ntile percent_rank cume_dist",
    "lag, a filter for where the value changes, and lead for the end": "rle rle_id",
    "scan(name=od.first(column))": "first_value",
    "scan(name=od.last(column))": "last_value",
    "branch(condition), which gives two pipelines": "split partition route",
    "aggregate with an od.sum(column, where=...) per value": "pivot",
    "flat_map with a function that gives several rows": "unpivot melt",
    "with_columns(name=od.col(struct).struct.field(name))": "unnest",
    "map_batches": "mapInArrow mapInPandas map_in_arrow mapPartitions map_partitions",
    "stream(data), or od.spark.stream(...)": "writeStream foreachBatch sink_to add_sink addSink sink to",
    "name= of each operator": "uid set_uid setName set_name",
    "run(data).table, a table of pyarrow": (
        "to_dict to_dicts to_numpy to_list tolist item write_parquet write_csv write_ipc "
        "to_parquet to_csv to_feather"
    ),
    **{
        f"stream(data), and write_batch(batch) of {writer}(path, pipeline.schema) for each batch": name
        for name, writer in {
            "sink_parquet": "pyarrow.parquet.ParquetWriter",
            "sink_csv": "pyarrow.csv.CSVWriter",
            "sink_ipc": "pyarrow.ipc.new_file",
        }.items()
    },
    "inspect(function), or a loop over stream(data)": "for_each foreach forEach",
    "stream(data), which goes no faster than its batches are read: wait there": "throttle rate_limit",
    "window(od.session(gap), time=...).aggregate(x=od.last(column)), behind key_by": "debounce",
    "stream(data), which gives batches": "iter_rows iter_slices itertuples iterrows toLocalIterator",
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
    ("join", "merge", "lookup", "join_where", "merge_asof", "asof_join"),
    "there are join_lookup(table, on=...) for a table that stays as it is, and for another pipeline "
    "join_interval(other, on=..., within=(least, most)) and join_asof(other, on=...)",
)
SYNONYMS |= {
    f"{how}_join": f"here it is join_lookup(table, on=..., how={how!r})" for how in ("semi", "anti")
}
SYNONYMS |= dict.fromkeys(
    ("union", "unionAll", "union_all", "unionByName", "concat", "vstack", "connect"),
    "pipelines are united by od.union(a, b), and with other columns by od.union(a, b, how='diagonal')",
)

#: Aggregations as other systems call them -> ours, of `od`.
_AGGREGATIONS = {
    **{
        name: name
        for name in (
            "sum",
            "mean",
            "min",
            "max",
            "std",
            "var",
            "median",
            "quantile",
            "first",
            "last",
            "collect",
        )
    },
    **{"avg": "mean", "average": "mean", "stddev": "std", "nunique": "count_distinct"},
    **{"n_unique": "count_distinct", "countDistinct": "count_distinct", "collect_list": "collect"},
    **{"minBy": "arg_min", "min_by": "arg_min", "maxBy": "arg_max", "max_by": "arg_max"},
}
SYNONYMS = {
    name: f"an aggregation is written aggregate(name=od.{ours}(column))"
    for name, ours in _AGGREGATIONS.items()
} | SYNONYMS
SYNONYMS |= dict.fromkeys(
    ("size", "len", "value_counts"), "here it is called count(), or aggregate(n=od.count())"
)

_BY_KEY = "a function with a state per key is process(function, schema=..., state=...)"

#: What to write where other systems would have an operator behind `key_by`.
IN_FRONT = {
    **dict.fromkeys(("map", "flat_map"), f"{_BY_KEY}; one of a row alone comes before key_by"),
    "deduplicate": "the key is among the columns of deduplicate: pipeline.deduplicate([key, ...])",
    "run": "say first what is kept by key, such as key_by(...).count()",
    "stream": "say first what is kept by key, such as key_by(...).count()",
}


def of_a_key(attribute: str, there: Iterable[str] = ()) -> str:
    """`advice` for a name that is tried behind `key_by`."""
    if attribute in ("apply", "map_elements", "map_rows"):
        return f": {_BY_KEY}, and an aggregation aggregate(name=od.sum(column))"
    return advice(attribute, there=there)


def of_a_window(attribute: str) -> str:
    """What to write behind a window in place of another system's method."""
    if attribute in ("count", "size", "len"):
        return ".aggregate(n=od.count())"
    ours = _AGGREGATIONS.get(attribute)
    return ".aggregate(...) next" if ours is None else f".aggregate(name=od.{ours}(column))"


#: For those who write pipeline["x"].
SUBSCRIPT = (
    "a pipeline has no items: a column is written od.col(name), several are chosen by select(...), rows by "
    "filter(condition) or head(n)"
)


def advice(attribute: str, columns: Sequence[str] = (), there: Iterable[str] = ()) -> str:
    """What to write instead of a name of another system, of a column, or of a misspelled one, with a
    separator in front; empty for other names. `there`: the names that there are.
    """
    if attribute in SYNONYMS:
        return f": {SYNONYMS[attribute]}"
    if attribute in columns:
        return f": a column is written od.col({attribute!r})"
    return meant(attribute, there)
