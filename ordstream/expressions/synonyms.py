"""What other systems call the methods of an expression, for the error text when one of their names is tried
here; `ordstream.pipeline.synonyms` has those of a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ordstream.errors import meant

_ROWS = "an expression looks at one row; write "

#: Here -> elsewhere, of expressions, of `.str`, of `.list`, of `.dt` and of `.struct`.
_ELSEWHERE = {
    "": {
        "is_null()": "isnull isna isNull",
        "is_not_null()": "notnull notna isNotNull is_not_na",
        "~column.isin(values)": "is_not_in not_in",
        "fill_null(value)": "fillna ifnull nvl",
        "fill_nan(value)": "nanvl",
        "between(low, high)": "isBetween",
        "cast(type)": "astype",
        "cast(type, strict=False)": "try_cast to_numeric",
        "maximum(other)": "greatest max_horizontal",
        "minimum(other)": "least min_horizontal",
        "if_else, or od.when(condition, value).otherwise(other)": "otherwise then where mask",
        "otherwise(value)": "else_ otherwise_ orElse",
        "od.when(condition, value).otherwise(other), or pipeline.join_lookup(table, on=...)": (
            "replace replace_strict map"
        ),
        "str.contains(text)": "contains like rlike",
        "str.starts_with(text)": "startswith starts_with",
        "str.ends_with(text)": "endswith ends_with",
        "str.slice(offset, length)": "substr substring",
        "str.lower()": "lower",
        "str.upper()": "upper",
        "struct.field(name)": "getField getItem",
        "dt.year() and the like": "year month day hour minute second",
        "column.length()": "len size",
        "str.length()": "char_length character_length",
        "str.contains(pattern, regex=True)": "regexp_like regexp",
        "dt.day()": "dayofmonth",
        "dt.epoch(unit)": "unix_timestamp to_unix_timestamp unix_seconds",
        "column + datetime.timedelta(...)": "date_add date_sub dateadd",
        "list.contains(value)": "array_contains",
        "list.get(index)": "element_at",
        "column % n": "mod",
        "~column": "not_",
        "a == b": "eq",
        "a != b": "ne",
        "a > b": "gt",
        "a >= b": "ge",
        "a < b": "lt",
        "a <= b": "le",
        "(a == b).fill_null(a.is_null() & b.is_null())": "eqNullSafe eq_missing equal_null",
        "a + b": "add",
        "a - b": "sub subtract",
        "a * b": "mul multiply",
        "a / b": "truediv div divide",
        "a // b": "floordiv",
        "-column": "neg negative negate",
        "a & b": "and_",
        "a | b": "or_",
        "is_nan()": "isNaN isnan",
        "log(), log(2)": "ln log2",
        "(column + 1).log()": "log1p",
        "column.exp() - 1": "expm1",
        "column.abs() == float('inf')": "is_infinite isinf",
        "column.abs() < float('inf')": "is_finite isfinite",
        "cast(int) of a float, dt.truncate(every) of a time": "trunc",
        "column ** (1 / 3), where it is not negative": "cbrt",
        "a ^ b": "xor",
        "a function with map, such as zlib.crc32": "hash crc32 xxhash64",
        "od.when(column < q).then(...), with q of a run before: aggregate(q=od.quantile(column, 0.5))": (
            "qcut"
        ),
        "dt.replace_time_zone(zone)": "tz_localize",
        "dt.convert_time_zone(zone)": "tz_convert from_utc_timestamp",
        "pow(exponent)": "power",
        "ceil()": "ceiling",
        "acos()": "arccos",
        "asin()": "arcsin",
        "atan()": "arctan",
        "atan2(x)": "arctan2",
        "od.when(column > 0).then(1).when(column < 0).then(-1).otherwise(0)": "sign signum",
        "od.when(column < 1).then('a').when(column < 2).then('b').otherwise('c')": "cut",
        "list.join(separator)": "array_join",
        "str.split(by)": "split",
        "str.replace(old, new, regex=True)": "regexp_replace",
        "str.extract(pattern)": "regexp_extract",
        "str.count_matches(pattern)": "regexp_count",
        "dt.truncate(every)": "date_trunc truncate",
        "dt.date()": "to_date",
        "dt.strftime(format)": "date_format",
        "(a - b).dt.total_seconds()": "timestampdiff datediff",
    },
    "str": {
        "str.strip_chars()": "strip trim",
        "str.strip_chars_start()": "lstrip ltrim",
        "str.strip_chars_end()": "rstrip rtrim",
        "column + other": "concat cat",
        "str.pad_start(length, fill_char)": "lpad rjust zfill ljust_start",
        "str.pad_end(length, fill_char)": "rpad ljust",
        "str.starts_with(text)": "startswith",
        "str.ends_with(text)": "endswith",
        "str.length()": "len",
        "the expression's own .length()": "len_bytes",
        "str.replace(old, new), which replaces all": "replace_all",
        "str.replace(old, new, regex=True)": "regexp_replace",
        "str.contains(pattern, regex=True)": "match fullmatch rlike",
        "str.count_matches(pattern)": "count",
        "str.to_datetime(format)": "strptime to_timestamp",
        "str.to_datetime(format, strict=False)": "try_to_timestamp",
        "cast(int), cast(float)": "to_integer to_decimal",
        "str.split(by, n=n), and .list.get(i) of it": "splitn split_exact rsplit",
        "str.split(by, regex=True)": "split_regex",
        "str.extract(pattern), piece by piece; or a function with map": "extract_all findall",
        "str.replace('^text', '', regex=True)": "strip_prefix removeprefix",
        "str.replace('text$', '', regex=True)": "strip_suffix removesuffix",
        "a function with map, or map_batches": "find index rfind capitalize title to_titlecase initcap",
        r"str.contains('^\d+$', regex=True)": "isdigit isdecimal isnumeric",
        r"str.contains('^\p{L}+$', regex=True)": "isalpha",
        r"str.contains('^[\p{L}\p{N}]+$', regex=True)": "isalnum",
        "list.join(separator) of a list, for one of rows aggregate(x=od.collect(column)) in front": "join",
        "a function with map, or map_batches (json.loads)": "json_decode json_path_match",
    },
    "list": {
        "list.length()": "size count",
        "list.get(index)": "at element_at",
        "list.contains(value)": "has array_contains",
        "list.join(separator)": "array_join concat",
        "a function with map, or map_batches": "head tail slice shift reverse concat_list",
        "flat_map(od.explode(column)) of the pipeline": "explode",
        "flat_map(od.explode(column)), and an aggregation by key": (
            "sum mean min max median std var any all n_unique unique sort eval agg"
        ),
    },
    "dt": {
        "dt.week()": "isocalendar weekofyear",
        "dt.weekday()": "dayofweek day_of_week",
        "dt.ordinal_day()": "dayofyear day_of_year",
        "dt.truncate(every)": "floor trunc date_trunc round",
        "dt.epoch(unit)": "timestamp",
        "dt.date()": "normalize",
        "dt.strftime(format)": "date_format",
        "dt.strftime('%A')": "day_name",
        "dt.strftime('%B')": "month_name",
        "dt.truncate(every), and one more where it is less than the column": "ceil",
        "a function with map, or map_batches": "days_in_month month_end month_start is_leap_year",
        "dt.convert_time_zone(zone)": "tz_convert",
        "dt.replace_time_zone(zone)": "tz_localize",
        "column + datetime.timedelta(...)": "offset_by",
        "dt.total_days() of a duration, dt.day() of a date": "days",
        **{
            f"dt.total_{unit}s() of a duration, dt.{unit}() of a time": f"{unit}s"
            for unit in ("hour", "minute", "second", "millisecond", "microsecond", "nanosecond")
        },
        "str.to_datetime(format)": "strptime",
        "dt.strftime('%H:%M:%S'), or column - column.dt.truncate('1d'), a duration": "time",
        "a.cast(pa.timestamp('us')) + b, of a date a and a duration b": "combine",
    },
    "struct": {
        "select(b=od.col(name).struct.field('a')), a column per field; a function with map makes structs": (
            "rename_fields with_fields"
        ),
    },
}
_WORDS = {
    (family, name): f"write {ours}"
    for family, table in _ELSEWHERE.items()
    for ours, names in table.items()
    for name in names.split()
}
_WORDS |= {
    ("", name): f"{_ROWS}pipeline.key_by(...).{ours}"
    for ours, names in {
        "lag(column, n)": "shift lag",
        "lead(column, n)": "lead",
        "scan(name=od.sum(column))": "scan",
        "lag({'before': column}), then column / od.col('before') - 1": "pct_change",
        "diff(column)": "diff",
        "cum_sum(column)": "cum_sum cumsum",
        "cum_count()": "cum_count cumcount row_number",
        "cum_min(column)": "cum_min cummin",
        "cum_max(column)": "cum_max cummax",
        "forward_fill(column)": "forward_fill ffill",
        "window(...).aggregate(...), scan(...) or lag(...)": (
            "over rolling rolling_mean rolling_sum rolling_min rolling_max rolling_std rolling_var "
            "rolling_median rolling_quantile rolling_mean_by rolling_sum_by rolling_min_by rolling_max_by"
        ),
        "scan(name=od.mean(column))": "expanding",
        "head(n)": "head limit",
        "tail(n)": "tail",
        "top_k(...), or cum_count()": "rank",
        "process(...), which keeps the value so far": "ewm_mean cum_prod",
        "cum_count('n'), then filter(od.col('n') > 1) for the repeats": "is_duplicated is_unique duplicated",
        "process(...), which keeps rows until the next value": "backward_fill bfill interpolate",
        "lag(column), and a filter for where the value changes": "rle rle_id",
    }.items()
    for name in names.split()
}
_WORDS |= {
    ("", name): f"{_ROWS}an aggregation in .aggregate(...) or .scan(...): od.{ours}(column)"
    for ours, names in {
        **{name: name for name in ("sum", "mean", "count", "first", "last", "median", "std", "var")},
        "min": "min all",
        "max": "max any",
        "count_distinct": "n_unique nunique approx_n_unique",
        "quantile": "quantile",
    }.items()
    for name in names.split()
}
_WORDS |= {
    ("od", name): f"write {ours}"
    for ours, names in {
        "od.col(name)": "column Column",
        "column.coalesce(other, ...)": "coalesce",
        "pipeline.join_lookup(...), .join_interval(...) or .join_asof(...)": "join",
        "a.maximum(b)": "max_horizontal greatest",
        "a.minimum(b)": "min_horizontal least",
        "a + b, with numbers as .cast(str)": "concat_str",
        "a + b of strings, with numbers as .cast(str); pipelines are united by od.union(a, b)": "concat",
        "od.count()": "len",
        "od.count(where=condition)": "count_if",
        "od.sum(column, where=condition)": "sum_if",
        "od.max(column)": "any bool_or",
        "od.min(column)": "all bool_and",
        "od.last(column)": "last_value",
        "od.quantile(column, q)": "percentile percentile_approx approx_percentile",
        "key_by(...).top_values(column, 1)": "mode",
        "key_by(...).top_k(...), or cum_count()": "rank dense_rank",
        "od.tumbling(length), od.hopping(...), od.session(...) or od.calendar(...)": (
            "window TumblingWindow TumblingWindower Tumble tumble"
        ),
        "od.session(timeout)": "session_window SessionWindow SessionWindower",
        "od.hopping(length, every=...), or od.rolling(length) with a window per row": (
            "sliding SlidingWindow SlidingWindower HoppingWindow hop"
        ),
        "od.count_distinct(column)": (
            "n_unique nunique approx_n_unique approx_count_distinct countDistinct approxCountDistinct"
        ),
        "od.mean(column)": "avg",
        "od.std(column)": "stddev stddev_samp",
        "od.var(column)": "variance var_samp",
        "od.arg_max(column, by)": "max_by",
        "od.arg_min(column, by)": "min_by",
        "od.collect(column)": "collect_list implode array_agg",
        "key_by(...).lag(column)": "lag",
        "key_by(...).lead(column)": "lead",
        "key_by(...).cum_count()": "row_number cum_count",
        "key_by(...).cum_sum(column)": "cum_sum",
        "od.lit(value)": "literal",
        "od.Pipeline(table.schema), and run(table)": (
            "DataFrame LazyFrame read_csv read_parquet read_ipc read_json scan_csv scan_ipc from_arrow "
            "from_pandas from_dict from_dicts"
        ),
        "od.ParquetSource(paths), which run takes": "scan_parquet",
        "pyarrow.csv.open_csv(path), which run and stream take": "CsvSource CSVSource open_csv",
        "an iterable of record batches, which stream takes": "KafkaSource KafkaConsumer from_kafka",
        "od.col(name).struct.field(...)": "field",
        "columns side by side; a function with map gives a dict": "struct named_struct to_json from_json",
        "od.col(name) and its methods": "expr sql_expr",
        "column + separator + other": "concat_ws",
        "od.collect(column) behind a deduplicate": "collect_set",
        "join_lookup(table, on=...), whose table every worker has": "broadcast",
        "a text such as '5m', or datetime.timedelta(minutes=5)": "duration timedelta",
        "a table that has the times; windows without rows are given by window(..., fill_gaps=True)": (
            "date_range datetime_range"
        ),
        "the means of x, y, x * x, y * y and x * y in one aggregate, and compute with them behind it": (
            "cov covar_samp covar_pop corr"
        ),
        "the means of x, x ** 2 and x ** 3 (x ** 4) in one aggregate, and compute with them behind it": (
            "skew skewness kurtosis"
        ),
        "pyarrow.json.read_json(path), a table": "JsonSource JSONSource read_ndjson scan_ndjson",
        "od.sum(column.log()) of positive numbers, and .exp() of it behind; or process(...)": "product",
        "od.collect(column), and od.col(name).list.join(separator) behind it": (
            "string_agg listagg group_concat"
        ),
        "od.first(column)": "any_value first_value",
        "a & b": "all_horizontal",
        "a | b": "any_horizontal",
        "top_k(k, by=column), the smallest with descending=False; od.spark takes F.asc and F.desc": (
            "asc desc"
        ),
    }.items()
    for name in names.split()
}
_WORDS |= {
    ("", name): f"{_ROWS}pipeline.{ours}"
    for ours, names in {
        "filter(column.is_not_null())": "drop_nulls dropna",
        "deduplicate(column)": "unique drop_duplicates",
        "flat_map(od.explode(column))": "explode",
        "key_by(column).count()": "value_counts",
    }.items()
    for name in names.split()
}
_WORDS["", "sort"] = _WORDS["", "sort_by"] = (
    f"{_ROWS}pipeline.top_k(...); a pipeline keeps the order of its source"
)
_WORDS["", "apply"] = _WORDS["", "map_elements"] = (
    "a function of rows is .map(fn, schema=...) of the pipeline"
)


def advice(name: str, family: str = "", there: Iterable[str] = ()) -> str:
    """What to write instead of a name of another system, or of a misspelled one, with a separator in front;
    empty for other names.

    Parameters
    ----------
    family : "" (a method of an expression), "str", "list", "struct", "dt", or "od" (a name of this package)
    there : iterable of str
        The names that there are.
    """
    found = _WORDS.get((family, name))
    return meant(name, there) if found is None else f": {found}"


def instead_of_item(key: Any) -> str:
    """What to write for column[key]."""
    if isinstance(key, str):
        return f"a field of a struct is column.struct.field({key!r})"
    if isinstance(key, slice):
        return "characters of a string are column.str.slice(offset, length)"
    return f"an element of a list is column.list.get({key!r}), a character column.str.slice({key!r}, 1)"


def is_uncalled(value: Any) -> bool:
    """Whether it is a method of an expression, in place of what a call of it gives."""
    return type(getattr(value, "__self__", None)).__module__.startswith("ordstream.expressions.")


def instead_of_constant(value: Any) -> str:
    """What to write for something that is no constant, with a separator in front; empty for others."""
    if is_uncalled(value):
        return f"; it is a method, and is called: .{value.__name__}(...)"
    if callable(value):
        return "; a function of rows goes to .map(fn, schema=...)"
    if isinstance(getattr(value, "function", None), str):
        return f"; an aggregation is written in .aggregate(...) or .scan(...): name=od.{value.function}(...)"
    if type(value).__name__ == "Then":
        return "; when(condition) has no value: add .then(value)"
    if type(value).__name__ in ("Expr", "Expression", "Column"):
        return "; a column is written od.col(name)"
    return ""
