"""What an error says to write does what the name that was tried does elsewhere."""

from __future__ import annotations

import datetime
import io
import itertools
import math
import pickle
import statistics
import time
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet
import pytest

import ordstream as od
from ordstream.testing import run_serial

X, B = od.col("x"), od.col("b")
P = od.Pipeline({"k": "int64", "x": "int64", "b": "bool", "s": pa.struct({"a": pa.int64()})})


def both(pipeline, data):
    """Rows of a run, which are those of the reference."""
    rows = pipeline.run(data).table.to_pylist()
    assert rows == run_serial(pipeline, data).table.to_pylist()
    return rows


def column(made, *values, type_=None):
    """What an expression of x gives."""
    data = pa.table({"x": pa.array(values, type_)})
    return [row["y"] for row in both(od.Pipeline(data.schema).select(y=made), data)]


def advised(place, names):
    """What is said about names that are not there."""
    told = []
    for name in names.split():
        with pytest.raises(AttributeError) as caught:
            getattr(place, name)
        told.append(str(caught.value).partition(": ")[2])
    return told


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: X.is_finite, r"write column\.abs\(\) < float\('inf'\)$"),
        (lambda: X.any, r"od\.max\(column\)$"),
        (lambda: X.all, r"od\.min\(column\)$"),
        (lambda: X.trunc, r"write cast\(int\) of a float"),
        (lambda: X.nunique, r"od\.count_distinct\(column\)$"),
        (lambda: X.hash, "a function with map, such as zlib.crc32$"),
        (lambda: X.is_duplicated, r"cum_count\('n'\), then filter\(od\.col\('n'\) > 1\)"),
        (lambda: X.qcut, r"aggregate\(q=od\.quantile\(column, 0\.5\)\)"),
        (lambda: X.cbrt, r"column \*\* \(1 / 3\)"),
        (lambda: X.replace, r"or pipeline\.join_lookup\(table, on=\.\.\.\)$"),
        (lambda: X.lookup({1: 2}), r"join_lookup\(pa\.table\(\{'x': list\(d\), 'y': list\(d\.values"),
        (lambda: X.dt.days, r"write dt\.total_days\(\) of a duration"),
        (lambda: X.dt.seconds, r"write dt\.total_seconds\(\) of a duration, dt\.second\(\)"),
        (lambda: X.dt.strptime, r"write str\.to_datetime\(format\)$"),
        (lambda: X.dt.time, r"column\.dt\.truncate\('1d'\)"),
        (lambda: X.dt.combine, r"a\.cast\(pa\.timestamp\('us'\)\) \+ b"),
        (lambda: X.str.isdigit, r"str\.contains\('\^\\d\+\$', regex=True\)$"),
        (lambda: X.str.join, r"list\.join\(separator\)"),
        (lambda: X.struct.rename_fields, r"select\(b=od\.col\(name\)\.struct\.field\('a'\)\)"),
        (lambda: X.struct.plain, r"`\.struct` has no 'plain': a field is \.struct\.field\('plain'\)$"),
        (lambda: X.struct._plain, r"`\.struct` has no '_plain'$"),
        (lambda: od.duration, "a text such as '5m', or datetime"),
        (lambda: od.date_range, "fill_gaps=True"),
        (lambda: od.cov, r"means of x, y, x \* x"),
        (lambda: od.corr, r"means of x, y, x \* x"),
        (lambda: od.skew, r"means of x, x \*\* 2"),
        (lambda: od.JsonSource, r"pyarrow\.json\.read_json\(path\)"),
        (lambda: od.product, r"od\.sum\(column\.log\(\)\)"),
        (lambda: od.string_agg, r"od\.collect\(column\)"),
        (lambda: od.any_value, r"od\.first\(column\)$"),
        (lambda: od.all_horizontal, "write a & b$"),
        (lambda: P.width, r"called len\(pipeline\.schema\)$"),
        (lambda: P.sink_parquet, r"pyarrow\.parquet\.ParquetWriter\(path, pipeline\.schema\)"),
        (lambda: P.watermark, r"reorder\(time, slack=\.\.\.\)$"),
        (lambda: P.throttle, "no faster than its batches are read"),
        (lambda: P.rate_limit, "no faster than its batches are read"),
        (lambda: P.debounce, r"od\.session\(gap\)"),
        (lambda: P.accumulate, "called scan$"),
        (lambda: P.for_each, r"inspect\(function\), or a loop over stream\(data\)$"),
        (lambda: X << 1, r"column \* 2\*\*n for <<"),
        (lambda: 1 >> X, r"column // 2\*\*n for >>"),
        (lambda: X @ X, r"a \* b$"),
        (lambda: divmod(X, 2), "a // b, and a % b$"),
        (lambda: od.count() ^ od.count(), "can't be computed with"),
        (lambda: P.filter(B ^ X), r"boolean is needed, got int64 in \(b \^ x\), which is != of booleans"),
        (lambda: P.filter(2 ^ B), r"boolean is needed, got int64 in \(2 \^ b\), .* a power is \*\*"),
        (lambda: B ^ None, r"write is_null\(\), or is_not_null\(\)$"),
        (lambda: P.key_by("k").scan(m=lambda row: 1), r"a function with a state goes to process\("),
        (
            lambda: P.window(od.tumbling(5), time="x").aggregate(start=od.count()),
            r"name\(s\) 'start': the operator's own columns start, end are in the output, too; give what is"
            " added another name$",
        ),
        (
            lambda: P.window(od.tumbling(5), time="x").aggregate(closed=od.count(), emit="both"),
            r"name\(s\) 'closed': the operator's own columns start, end, closed are",
        ),
        (
            lambda: P.key_by("k").sessionize("x", 5, aggregate={"count": od.sum("x")}),
            r"name\(s\) 'count': the operator's own columns start, end, count are",
        ),
    ],
)
def test_the_error_says_what_to_write(make, text):
    with pytest.raises((od.SchemaError, od.PlanError, AttributeError, TypeError), match=text):
        make()


@pytest.mark.parametrize(
    ("place", "name"), [(od, "cvo"), (X, "tnn"), (X, "trunk"), (X.dt, "timer"), (P, "rub")]
)
def test_a_short_name_is_not_taken_for_another(place, name):
    """`any` was taken for `tan`, `time` for `strftime`."""
    with pytest.raises(AttributeError, match=f"{name}'$"):
        getattr(place, name)


def test_advice_about_numbers():
    finite, cut, root = advised(X, "is_finite trunc cbrt")
    assert finite == "write column.abs() < float('inf')"
    assert cut.startswith("write cast(int)")
    assert "column ** (1 / 3)" in root
    inf, nan = float("inf"), float("nan")
    assert column(X.abs() < float("inf"), 1.5, -inf, nan, None) == [True, False, False, None]
    assert column(X.cast(int), 1.9, -1.9) == [1, -1]
    assert column(X ** (1 / 3), 27.0)[0] == pytest.approx(3)
    assert column(X * 2**3, 5, -5) == [5 << 3, -5 << 3]
    assert column(X // 2**2, 13, -13) == [13 >> 2, -13 >> 2]


def test_advice_about_times():
    assert all(told.startswith("write ") for told in advised(X.dt, "days time combine strptime"))
    hours = datetime.timedelta(hours=49)
    assert column(X.dt.total_days(), hours, type_=pa.duration("s")) == [2]
    noon = datetime.datetime(2024, 2, 29, 12, 30)
    assert column(X.dt.strftime("%H:%M:%S"), noon) == ["12:30:00"]
    assert column(X - X.dt.truncate("1d"), noon) == [datetime.timedelta(hours=12, minutes=30)]
    assert column(X.cast(pa.timestamp("us")) + hours, noon.date()) == [datetime.datetime(2024, 3, 2, 1)]
    assert column(X.str.to_datetime("%d.%m.%Y"), "29.02.2024") == [datetime.datetime(2024, 2, 29)]


def test_advice_about_texts():
    assert all("str.contains" in told for told in advised(X.str, "isdigit isalpha isalnum"))
    assert column(X.str.contains(r"^\d+$", regex=True), "12", "1a", "") == [True, False, False]
    assert column(X.str.contains(r"^\p{L}+$", regex=True), "äb", "1a") == [True, False]
    assert column(X.str.contains(r"^[\p{L}\p{N}]+$", regex=True), "ä1", "1 a") == [True, False]


def test_advice_about_aggregations():
    assert all(
        told.startswith("write ") for told in advised(od, "cov corr skew product string_agg any_value")
    )
    data = pa.table({"k": [1, 1, 1], "x": [1.0, 2.0, 4.0], "y": [2.0, 3.0, 9.0], "t": ["a", "b", None]})
    x, y = od.col("x"), od.col("y")
    made = (
        od.Pipeline(data.schema)
        .key_by("k")
        .aggregate(
            emit="final",
            a=od.mean("x"),
            b=od.mean("y"),
            aa=od.mean(x * x),
            bb=od.mean(y * y),
            ab=od.mean(x * y),
            logs=od.sum(x.log()),
            texts=od.collect("t"),
            some=od.first("t"),
        )
    )
    a, b = od.col("a"), od.col("b")
    cov = od.col("ab") - a * b
    pipeline = made.select(
        "some",
        cov=cov * 3 / 2,
        corr=cov / ((od.col("aa") - a * a) * (od.col("bb") - b * b)).sqrt(),
        product=od.col("logs").exp(),
        text=od.col("texts").list.join("-"),
    )
    (row,) = both(pipeline, data)
    values = data["x"].to_pylist(), data["y"].to_pylist()
    assert row["cov"] == pytest.approx(statistics.covariance(*values))
    assert row["corr"] == pytest.approx(statistics.correlation(*values))
    assert row["product"] == pytest.approx(math.prod(values[0]))
    assert (row["text"], row["some"]) == ("a-b", "a")


def test_advice_about_rows():
    assert all(advised(X, "is_duplicated hash"))
    assert all(advised(P, "for_each debounce"))
    assert "join_lookup" in advised(X, "replace")[0]
    assert advised(P, "width") == ["here it is called len(pipeline.schema)"]
    data = pa.table({"x": [7, 8, 7]})
    pipeline = od.Pipeline(data.schema)
    repeats = pipeline.key_by("x").cum_count("n").filter(od.col("n") > 1)
    assert both(repeats, data) == [{"x": 7, "n": 2}]
    hashed = pipeline.map(lambda row: {"h": zlib.crc32(str(row.x).encode())}, schema={"h": int})
    assert [row["h"] for row in both(hashed, data)] == [zlib.crc32(b"7"), zlib.crc32(b"8"), zlib.crc32(b"7")]
    d = {7: "seven", 9: "nine"}
    named = pipeline.join_lookup(pa.table({"x": list(d), "y": list(d.values())}), on="x", how="left")
    assert [row["y"] for row in both(named, data)] == ["seven", None, "seven"]
    seen = []
    pipeline.inspect(lambda row: seen.append(row.x)).run(data)
    assert seen == [7, 8, 7]
    quiet = pipeline.window(od.session(1), time="x").aggregate(x=od.last("x"))
    assert [row["x"] for row in both(quiet, pa.table({"x": [1, 2, 9]}))] == [2, 9]
    assert len(P.schema) == 4


@pytest.mark.parametrize(
    ("name", "writer", "read"),
    [
        ("parquet", pyarrow.parquet.ParquetWriter, pyarrow.parquet.read_table),
        ("csv", pyarrow.csv.CSVWriter, pyarrow.csv.read_csv),
        ("ipc", pyarrow.ipc.new_file, lambda path: pyarrow.ipc.open_file(path).read_all()),
    ],
)
def test_a_stream_is_written_batch_by_batch(tmp_path, name, writer, read):
    assert f" of pyarrow.{name}.{writer.__name__}(path" in advised(P, f"sink_{name}")[0]
    data = pa.table({"x": [1, 2, 3]})
    pipeline = od.Pipeline(data.schema).filter(X > 1)
    path = str(tmp_path / "written")
    with writer(path, pipeline.schema) as file, pipeline.stream(data) as stream:
        for batch in stream:
            file.write_batch(batch)
    assert read(path).to_pydict() == {"x": [2, 3]}


def test_json_is_read_by_arrow():
    assert advised(od, "JsonSource") == ["write pyarrow.json.read_json(path), a table"]
    table = pyarrow.json.read_json(io.BytesIO(b'{"x": 1}\n{"x": 2}\n'))
    assert both(od.Pipeline(table.schema).filter(X > 1), table) == [{"x": 2}]


def test_booleans_that_differ():
    values = [*itertools.product([True, False, None], repeat=2)]
    data = pa.table({"a": [a for a, _ in values], "b": [b for _, b in values]})
    a = od.col("a")
    pipeline = od.Pipeline(data.schema).select(
        xor=a ^ B, ne=a != B, left=True ^ a, right=a ^ (B | False), numpy=np.bool_(True) ^ a
    )
    assert repr(pickle.loads(pickle.dumps(a ^ B))) == "(a ^ b)"
    again = a
    for _ in range(40):  # its text is not made before its parts are counted
        again = again ^ again
    with pytest.raises(od.SchemaError, match="parts, where 262144 are the most"):
        od.Pipeline(data.schema).filter(again)
    rows = both(pipeline, data)
    assert [row["xor"] for row in rows] == [row["ne"] for row in rows] == [row["right"] for row in rows]
    assert [row["xor"] for row in rows] == [None if None in pair else pair[0] != pair[1] for pair in values]
    turned = [None if left is None else not left for left, _ in values]
    assert [row["left"] for row in rows] == [row["numpy"] for row in rows] == turned


class Counted:
    """An endless source that counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        if self.asked > 100:
            raise RuntimeError("it would go on for ever")
        return ("x", "int64")


@pytest.mark.parametrize("make", [od.Pipeline, lambda given: P.map(len, schema=given)])
def test_columns_are_not_drawn_from_an_iterator(make):
    """They were, all of them, and the run had no rows."""
    batches = [pa.record_batch({"x": [1]}), pa.record_batch({"x": [2]})]
    for given in (iter(batches), (batch for batch in batches), map(len, batches)):
        text = r"expected .*, got <.*only once: .* od\.Pipeline\(first_batch\.schema\)"
        with pytest.raises(od.SchemaError, match=text):
            make(given)
        assert len(list(given)) == 2
    endless = Counted()
    with pytest.raises(od.SchemaError, match="which can be gone through only once"):
        make(endless)
    assert endless.asked == 0
    assert od.Pipeline(list(zip(["x"], ["int64"], strict=True))).schema == pa.schema({"x": pa.int64()})
    assert od.Pipeline(batches[0].schema).run(iter(batches)).table["x"].to_pylist() == [1, 2]


ODD = {
    "h": (pa.float16(), r"pa\.float32\(\)"),
    "d": (pa.decimal32(5, 2), r"pa\.decimal128\(5, 2\)"),
    "w": (pa.decimal256(50, 2), r"pa\.decimal128\(38, 2\)"),
    "f": (pa.binary(4), r"pa\.binary\(\)"),
}
PASSING = od.Pipeline({"k": pa.int64()} | {name: type_ for name, (type_, _) in ODD.items()}).key_by("k")


@pytest.mark.parametrize("name", ODD)
def test_what_passes_through_is_cast_in_the_source(name):
    """A cast in the pipeline, which was said, is refused."""
    type_, to = ODD[name]
    compared = [od.min(name), od.max(name), od.count_distinct(name), od.arg_max("k", name)]
    for made in compared:
        with pytest.raises(od.SchemaError, match=rf"can't be compared, .*; cast it in the source to {to}$"):
            PASSING.aggregate(m=made)
    with pytest.raises(od.SchemaError, match=rf"can't be a key; cast it in the source to {to}$"):
        od.Pipeline({name: type_}).key_by(name)
    for made in (od.sum(name), od.mean(name), od.var(name), od.median(name)):
        with pytest.raises(od.SchemaError, match="is not defined for") as caught:
            PASSING.aggregate(m=made)
        rounds = made.function in ("var", "median") and name in "dw"
        wanted = "; cast it in the source to " if name != "f" else ""
        wanted += "pa.float64(), which" * rounds
        assert ".cast(pa.float64())" not in str(caught.value)
        assert wanted in str(caught.value)
        assert bool(wanted) == ("in the source" in str(caught.value))


@pytest.mark.parametrize(
    ("given", "to", "function"),
    [
        (pa.decimal256(50, 2), pa.decimal128(38, 2), od.sum),
        (pa.decimal256(50, 2), pa.float64(), od.median),
        (pa.decimal32(5, 2), pa.decimal128(5, 2), od.mean),
        (pa.float16(), pa.float32(), od.var),
        (pa.float16(), pa.float32(), od.max),
    ],
)
def test_the_cast_in_the_source_helps(given, to, function):
    values = pa.array([1.5, 2.5]).cast(pa.float32()).cast(to)
    data = pa.table({"k": [1, 1], "x": values.cast(given)})
    with pytest.raises(od.SchemaError, match="; cast it in the source to pa"):
        od.Pipeline(data.schema).key_by("k").aggregate(y=function("x"))
    data = data.set_column(1, "x", data["x"].cast(to))
    made = od.Pipeline(data.schema).key_by("k").aggregate(y=function("x"), emit="final")
    expected = {od.sum: 4.0, od.median: 2.0, od.mean: 2.0, od.var: 0.5, od.max: 2.5}[function]
    assert [float(row["y"]) for row in both(made, data)] == [expected]


def test_unsigned_times_are_cast_in_front():
    data = pa.table({"u": pa.array([1, 2, 7], pa.uint64())})
    pipeline = od.Pipeline(data.schema)
    text = r"it is uint64; cast it in front, with_columns\(od\.col\('u'\)\.cast\(pa\.int64\(\)\)\.alias\("
    with pytest.raises(od.SchemaError, match=text):
        pipeline.window(od.tumbling(5), time="u").aggregate(n=od.count())
    cast = pipeline.with_columns(od.col("u").cast(pa.int64()).alias("u"))
    made = cast.window(od.tumbling(5), time="u").aggregate(n=od.count())
    assert [row["n"] for row in both(made, data)] == [2, 1]


def test_a_result_has_no_length_and_is_true():
    result = P.run(P.schema.empty_table())
    with pytest.raises(TypeError, match=r"no len\(\): its rows are counted by result\.table\.num_rows"):
        len(result)
    assert bool(result)
    assert result.table.num_rows == 0


def test_zones_and_patterns_are_refused_in_our_words():
    data = od.Pipeline({"t": pa.timestamp("us"), "z": pa.timestamp("us", "UTC"), "x": "string"})
    zone = "the time zone 'Europe/Berlim' is not known: .*not found in timezone database"
    for made in (
        od.col("t").dt.replace_time_zone("Europe/Berlim"),
        od.col("z").dt.convert_time_zone("Europe/Berlim"),
    ):
        with pytest.raises(od.SchemaError, match=f"with_columns_1: {zone}"):
            data.with_columns(y=made)
    for made in (
        X.str.contains("(", regex=True),
        X.str.replace("(", "", regex=True),
        X.str.extract("("),
        X.str.count_matches("("),
        X.str.split("(", regex=True),
    ):
        with pytest.raises(
            od.SchemaError, match=r"with_columns_1: the regular expression '\(' is not valid: missing \)"
        ):
            data.with_columns(y=made)
    with pytest.raises(od.SchemaError, match=r"the replacement '\\\\2' is not valid: Rewrite schema"):
        data.with_columns(y=X.str.replace("(a)", r"\2", regex=True))


def test_a_stream_goes_no_faster_than_it_is_read():
    assert "no faster than its batches are read" in advised(P, "throttle")[0]
    asked = []

    def batches():
        for i in range(2_000):
            asked.append(i)
            yield pa.record_batch({"x": range(10_000)})

    pipeline = od.Pipeline({"x": "int64"}).filter(X >= 0)
    with pipeline.stream(batches()) as stream:
        next(iter(stream))
        before = 0
        while before < len(asked):  # until it waits
            before = len(asked)
            time.sleep(0.3)
        assert before < 2_000
