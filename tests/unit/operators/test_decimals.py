"""Decimals: summed, compared and keys, beside DuckDB, Python's Decimal and a run of one row at a time."""

import decimal
import random
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.expressions.evaluate import evaluate
from ordstream.expressions.lowering import lower
from ordstream.ground.types import from_storage, storage_values, to_python, to_storage
from ordstream.reference.run_serial import run_serial

col = od.col
_WIDE = decimal.Context(prec=60)
PRICE, RATE, WIDE = pa.decimal128(10, 2), pa.decimal128(18, 6), pa.decimal128(30, 2)
SOURCE = pa.schema([("n", pa.int64()), ("price", PRICE), ("rate", RATE), ("units", pa.int32())])
PRICES = ["0.00", "-0.01", "12.50", None, "-99999999.99", "99999999.99", "12.50", "1.05"]
RATES = ["1.000000", "-0.000001", "12.500000", "12.500001", None, "99999999.990000", "0.000000", "1.050000"]


@pytest.fixture(scope="module")
def table():
    """64 rows in which every price meets every rate."""
    prices = [PRICES[n % 8] for n in range(64)]
    rates = [RATES[n // 8] for n in range(64)]
    columns = [list(range(64)), *([None if v is None else Decimal(v) for v in c] for c in (prices, rates))]
    return pa.table([*columns, [n % 5 - 2 for n in range(64)]], schema=SOURCE)


def agreed(pipeline, table):
    """The rows that every run gives."""
    expected = run_serial(pipeline, table).table
    for workers, size in ((0, 1), (2, 7), (0, None)):
        found = pipeline.run(table, workers=workers, chunk_rows=size).table
        assert found.schema.equals(expected.schema)
        assert found.to_pylist() == expected.to_pylist()
    return expected


def duck(table, sql):
    connection = duckdb.connect()
    connection.register("t", table)
    return connection.sql(sql).fetchall()


def rows_of(table):
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_sums_extremes_and_counts_by_a_decimal_key_are_duckdbs(table):
    aggregates = {
        "total": od.sum("rate"), "least": od.min("rate"), "most": od.max("rate"),
        "known": od.count("rate"), "first": od.first("rate"), "last": od.last("rate"),
        "kinds": od.count_distinct("rate"), "paid": od.sum("price", where=col("price") > 0),
    }  # fmt: skip
    made = od.Pipeline(SOURCE).key_by("price").aggregate(**aggregates, emit="final")
    found = agreed(made, table)
    assert found.schema.field("total").type == pa.decimal128(28, 6)
    assert found.schema.field("least").type == RATE
    wanted = duck(table, """
        select price, sum(rate), min(rate), max(rate), count(rate), first(rate order by n)
            filter (rate is not null), last(rate order by n) filter (rate is not null),
            count(distinct rate), coalesce(sum(price) filter (price > 0), 0)
        from t group by price
    """)  # fmt: skip
    assert sorted(rows_of(found), key=repr) == sorted(wanted, key=repr)


def test_a_running_sum_by_two_keys_is_the_window_functions(table):
    made = od.Pipeline(SOURCE).key_by("price", "units").scan(total=od.sum("rate"))
    wanted = duck(table, """
        select n, coalesce(sum(rate) over (partition by price, units order by n), 0) from t order by n
    """)  # fmt: skip
    found = agreed(od.Pipeline.of(made.plan).select("n", "total"), table)
    assert rows_of(found) == wanted


COMPARED = {
    "price > rate": col("price") > col("rate"),
    "price <= rate": col("price") <= col("rate"),
    "price = rate": col("price") == col("rate"),
    "price <> 12.5": col("price") != Decimal("12.5"),
    "rate < 12.500001": col("rate") < Decimal("12.500001"),
    "price >= units": col("price") >= col("units"),
    "price > 12": col("price") > 12,
    "price in (12.5, 1.05, 3)": col("price").isin([Decimal("12.5"), Decimal("1.05"), 3, Decimal("0.001")]),
    "price + rate > 13": col("price") + col("rate") > 13,
    "price is null": col("price").is_null(),
    "price < 1.5e0::double": col("price") < 1.5,
}


@pytest.mark.parametrize("sql", COMPARED)
def test_comparisons_choose_the_rows_that_duckdb_chooses(table, sql):
    found = agreed(od.Pipeline(SOURCE).filter(COMPARED[sql]).select("n"), table)
    assert rows_of(found) == duck(table, f"select n from t where {sql} order by n")


COMPUTED = {
    "price + rate": (col("price") + col("rate"), pa.decimal128(19, 6)),
    "price - rate": (col("price") - col("rate"), pa.decimal128(19, 6)),
    "price * units": (col("price") * col("units"), pa.decimal128(30, 2)),
    "price * 1.19": (col("price") * Decimal("1.19"), pa.decimal128(14, 4)),
    "-price": (-col("price"), PRICE),
    "abs(price)": (abs(col("price")), PRICE),
    "coalesce(price, rate)": (col("price").coalesce(col("rate")), pa.decimal128(18, 6)),
    "case when n > 9 then price else 0 end": (od.when(col("n") > 9, col("price")).otherwise(0), PRICE),
    "greatest(price, rate)": (col("price").maximum(col("rate")), pa.decimal128(18, 6)),
    "price::double": (col("price").cast(pa.float64()), pa.float64()),
    "price::decimal(14, 4)": (col("price").cast(pa.decimal128(14, 4)), pa.decimal128(14, 4)),
}


@pytest.mark.parametrize("sql", COMPUTED)
def test_arithmetic_is_exact_and_duckdbs(table, sql):
    expr, type_ = COMPUTED[sql]
    given = table.filter(pa.array([None not in row for row in rows_of(table)]))
    found = agreed(od.Pipeline(SOURCE).select(x=expr), given)
    assert found.schema.field("x").type == type_
    assert rows_of(found) == duck(given, f"select {sql} from t order by n")


def test_what_a_decimal_has_no_room_for_names_the_row():
    most = Decimal("9" * 35 + ".999")
    source = pa.schema([("x", pa.decimal128(38, 3))])
    data = pa.table([[Decimal("1.000"), most, Decimal("0.001")]], schema=source)
    least = Decimal("0.0001")
    for expr in (col("x") * 2, col("x") + least, col("x") == least):
        pipeline = od.Pipeline(source).select(x=expr)
        expected = run_serial(pipeline, data).error
        with pytest.raises(od.OperatorError) as failed:
            pipeline.run(data)
        assert failed.value.serial == expected.serial == 2
        assert failed.value.reason == expected.reason
        assert expected.reason.startswith("OverflowError: ")
    summed = od.Pipeline(source).scan(total=od.sum("x"))
    with pytest.raises(od.OperatorError, match="overflow in sum") as failed:
        summed.run(data)
    assert failed.value.serial == run_serial(summed, data).error.serial == 2


def test_more_digits_than_a_type_says_are_refused_where_they_arrive():
    narrow = pa.schema([("x", pa.decimal128(18, 3))])
    column = pa.Array.from_buffers(narrow.field(0).type, 1, [None, pa.py_buffer(b"\xff" * 15 + b"\x00")])
    with pytest.raises(od.SourceError, match="'x' has a decimal of more digits than its type says"):
        od.Pipeline(narrow).filter(col("x") > 0).run(pa.table([column], schema=narrow))


# ----------------------------------------------------------------------------------- of 19 to 38 digits

HUGE, LARGE = pa.decimal128(38, 4), pa.decimal128(20, 2)
BIG = pa.schema([("n", pa.int64()), ("k", LARGE), ("x", HUGE), ("price", PRICE)])
KEYS = ["0.00", "-0.01", "999999999999999999.99", None, "-999999999999999999.99", "18446744073709551.61"]
HUGES = ["0.0001", "-1.0000", None, "12345678901234567890123456789.0000",
         "-12345678901234567890123456789.1234", "18446744073709551616.0000",
         "-18446744073709551616.0000"]  # fmt: skip


@pytest.fixture(scope="module")
def big():
    """84 rows in which every key meets every value."""
    rows = [(n, KEYS[n % 6], HUGES[n // 6 % 7], PRICES[n % 8]) for n in range(84)]
    n, *columns = zip(*rows, strict=True)
    return pa.table([n, *([None if v is None else Decimal(v) for v in c] for c in columns)], schema=BIG)


def test_sums_extremes_and_counts_of_many_digits_are_duckdbs(big):
    aggregates = {
        "total": od.sum("x"), "least": od.min("x"), "most": od.max("x"), "known": od.count("x"),
        "first": od.first("x"), "last": od.last("x"), "kinds": od.count_distinct("x"),
        "at": od.arg_max("n", by="x"), "paid": od.sum("price", where=col("x") > 0),
    }  # fmt: skip
    found = agreed(od.Pipeline(BIG).key_by("k").aggregate(**aggregates, emit="final"), big)
    assert [found.schema.field(name).type for name in ("k", "total", "least", "paid")] == [
        LARGE, HUGE, HUGE, pa.decimal128(20, 2),
    ]  # fmt: skip
    wanted = duck(big, """
        select k, sum(x), min(x), max(x), count(x), first(x order by n) filter (x is not null),
            last(x order by n) filter (x is not null), count(distinct x),
            min(n) filter (x = most), coalesce(sum(price) filter (x > 0), 0)
        from (select *, max(x) over (partition by k) as most from t) group by k
    """)  # fmt: skip
    assert sorted(rows_of(found), key=repr) == sorted(wanted, key=repr)


BIG_COMPARED = {
    "x > 0": col("x") > 0,
    "x <= k": col("x") <= col("k"),
    "k = price": col("k") == col("price"),
    "x > n": col("x") > col("n"),
    "k <> -0.01": col("k") != Decimal("-0.01"),
    "k <= -0.01": col("k") <= Decimal("-0.01"),
    "k > -0.01": col("k") > Decimal("-0.01"),
    "x < 18446744073709551616": col("x") < 2**63 * Decimal(2),
    "k in (0, 18446744073709551.61, 3)": col("k").isin([0, Decimal("18446744073709551.61"), 3]),
    "x in (12345678901234567890123456789, 5)": col("x").isin([12345678901234567890123456789, 5]),
    "k + x > 1": col("k") + col("x") > 1,
    "abs(k) - 1 > price": abs(col("k")) - 1 > col("price"),
    "-k >= price * 2": -col("k") >= col("price") * 2,
    "case when x > k then x else k end = x": col("x").maximum(col("k")) == col("x"),
    "coalesce(x, k) > 0 or k is null": (col("x").coalesce(col("k")) > 0) | col("k").is_null(),
    "k::double > 1e17": col("k").cast(pa.float64()) > 1e17,
}


@pytest.mark.parametrize("sql", BIG_COMPARED)
def test_comparisons_of_many_digits_choose_the_rows_that_duckdb_chooses(big, sql):
    found = agreed(od.Pipeline(BIG).filter(BIG_COMPARED[sql]).select("n"), big)
    rows = rows_of(found)
    assert rows == duck(big, f"select n from t where {sql} order by n")
    assert 0 < len(rows) < 84


def drawn_numbers(seed, n):
    """Whole numbers of 1 to 38 digits, some at the edges of their 64-bit halves and of the type."""
    rng = random.Random(seed)
    edges = [0, 1, 2**32, 2**63, 2**64 - 1, 2**64, 2**96, 10**37, 10**38 - 1, 10**19, 3 * 10**18 + 1]
    numbers = [rng.choice(edges) if rng.random() < 0.4 else rng.randrange(10 ** rng.randrange(1, 39))
               for _ in range(n)]  # fmt: skip
    return [rng.choice((1, -1)) * one for one in numbers]


def test_what_has_a_place_in_38_digits_is_python_s_and_the_rest_an_overflow():
    a, b = drawn_numbers(1, 250), drawn_numbers(2, 250)
    a += [10**38 - 1, 1 - 10**38, 10**19, 6 * 2**64 - 1]  # the last: a carry out of 128 bits
    b += [1, -1, 10**19, (2**64 - 1) // 5]
    type_ = pa.decimal128(38, 0)
    n, x, y = range(len(a)), pa.array(map(Decimal, a), type_), pa.array(map(Decimal, b), type_)
    data = pa.table({"n": n, "x": x, "y": y})
    for expr, made in (
        (col("x") + col("y"), [p + q for p, q in zip(a, b, strict=True)]),
        (col("x") - col("y"), [p - q for p, q in zip(a, b, strict=True)]),
        (col("x") * col("y"), [p * q for p, q in zip(a, b, strict=True)]),
        (col("x").minimum(col("y")), list(map(min, a, b))),
        (col("x").maximum(col("y")), list(map(max, a, b))),
    ):
        wanted = [(place, one) for place, one in enumerate(made) if abs(one) < 10**38]
        pipeline = od.Pipeline(data.schema).select("n", z=expr, on_error="skip")
        found = pipeline.run(data, workers=0).table
        assert [(n, int(z)) for n, z in rows_of(found)] == wanted
        if len(wanted) < len(made):
            assert len(wanted) > 100


def test_two_that_meet_have_room_for_the_whole_part_of_either():
    whole, part = pa.decimal128(18, 0), pa.decimal128(9, 6)
    data = pa.table({"x": pa.array([Decimal(10**18 - 1), None], whole),
                     "y": pa.array([Decimal("999.999999"), Decimal("-0.000001")], part)})  # fmt: skip
    made = od.Pipeline(data.schema).select(
        a=col("x").coalesce(col("y")), b=col("y").maximum(col("x")), c=col("x") > col("y")
    )
    found = agreed(made, data)
    assert [field.type for field in found.schema][:2] == [pa.decimal128(24, 6)] * 2
    assert rows_of(found) == duck(data, "select coalesce(x, y), case when x > y then x end, x > y from t")


@pytest.mark.parametrize(
    ("x", "y", "made"),
    [
        (pa.decimal128(18, 0), pa.int64(), pa.decimal128(19, 0)),
        (pa.decimal128(5, 1), pa.int32(), pa.decimal128(19, 1)),
        (pa.decimal128(18, 18), pa.decimal128(1, 0), pa.decimal128(19, 18)),
        (pa.decimal128(18, 2), pa.decimal128(9, 2), pa.decimal128(18, 2)),
    ],
)
def test_a_remainder_has_the_digits_of_what_it_is_divided_by(x, y, made):
    """The largest y less one unit: more than the 18 digits of an x."""
    unit = Decimal(1).scaleb(-x.scale)
    most = {pa.int64(): 2**63 - 1, pa.int32(): 2**31 - 1}.get(y) or Decimal("9")
    data = pa.table({"x": pa.array([-unit, unit, None], x), "y": pa.array([most] * 3, y)})
    found = agreed(od.Pipeline(data.schema).select(r=col("x") % col("y")), data)
    found.validate(full=True)
    assert found.schema.field("r").type == made
    assert found["r"].to_pylist() == [_WIDE.subtract(Decimal(most), unit), unit, None]


@pytest.mark.parametrize("digits", [5, 30])
def test_a_decimal_in_thousands_is_its_float(digits):
    data = pa.table({"x": pa.array([Decimal(n * 10**5) for n in (1, 3, -7)], pa.decimal128(digits, -5))})
    made = od.Pipeline(data.schema).select(
        f=col("x").cast(float), i=col("x").cast(float).cast(int), h=col("x") / 2, more=col("x") < 100_000.5
    )
    found = agreed(made, data)
    assert found["f"].to_pylist() == [100_000.0, 300_000.0, -700_000.0]
    assert found["i"].to_pylist() == [100_000, 300_000, -700_000]
    assert found["h"].to_pylist() == [50_000.0, 150_000.0, -350_000.0]
    assert found["more"].to_pylist() == [True, False, True]


@pytest.mark.parametrize(("digits", "made"), [(8, 18), (9, 19), (28, 38), (29, 38)])
def test_a_sum_s_type_and_state_at_the_edge_of_64_bits(digits, made):
    most = Decimal(10**digits - 1).scaleb(-2, decimal.Context(prec=60))
    data = pa.table({"x": pa.array([most] * 8, pa.decimal128(digits, 2))})
    pipeline = od.Pipeline(data.schema).scan(s=od.sum("x"), m=od.mean("x"))
    found = agreed(pipeline, data)
    assert found.schema.field("s").type == pa.decimal128(made, 2)
    assert found["s"].to_pylist() == [_WIDE.multiply(most, n + 1) for n in range(8)]
    begun = pipeline.run(data.slice(0, 5), end="suspend")
    rest = pipeline.run(data.slice(5), restore=begun.snapshot)
    assert begun.table.to_pylist() + rest.table.to_pylist() == found.to_pylist()


def test_nothing_overflows_under_a_null():
    data = pa.table({"x": [None, Decimal(0)], "y": [Decimal(10**38 - 1), Decimal(0)]},
                    schema=pa.schema([(name, pa.decimal128(38, 0)) for name in "xy"]))  # fmt: skip
    summed = (col("x") + col("y")) + col("y")
    found = agreed(od.Pipeline(data.schema).select(z=summed, p=summed * col("y"), d=-summed - summed), data)
    assert found.to_pylist() == [dict.fromkeys("zpd"), dict.fromkeys("zpd", Decimal(0))]


def test_a_sum_of_exactly_39_digits_is_an_overflow():
    values = [10**38 - 1, 1]
    for sign in (1, -1):
        data = pa.table({"x": pa.array([Decimal(sign * one) for one in values], pa.decimal128(38, 0))})
        for made in (od.sum("x"), od.mean("x")):
            pipeline = od.Pipeline(data.schema).scan(z=made)
            with pytest.raises(od.OperatorError, match="does not fit into a decimal of 38 digits") as failed:
                pipeline.run(data)
            assert failed.value.serial == run_serial(pipeline, data).error.serial == 2


KEPT = {  # every operator that passes, keeps or compares what has many digits
    "running": lambda p: p.key_by("k").scan(total=od.sum("x"), mean=od.mean("k"), least=od.min("x")),
    "updates": lambda p: p.key_by("k", "n").aggregate(total=od.sum("x"), mean=od.mean("price")),
    "lag": lambda p: p.key_by("price").lag({"before": "x"}, n=2),
    "diff": lambda p: p.key_by("price").diff("k"),
    "fill": lambda p: p.key_by("price").forward_fill("x", "k"),
    "tumbling": lambda p: p.window(od.tumbling(8), time="n").aggregate(t=od.sum("x"), m=od.mean("x")),
    "hopping": lambda p: p.window(od.hopping(8, every=2), time="n").aggregate(t=od.sum("k"), l=od.last("x")),
    "sessions": lambda p: p.key_by("k").sessionize("n", 6, aggregate={"t": od.sum("x"), "m": od.mean("k")}),
    "rolling": lambda p: p.window(od.rolling(9), time="n").aggregate(t=od.sum("price"), m=od.max("x")),
    "rows": lambda p: p.key_by("k").window(od.rows(3)).aggregate(t=od.sum("price"), m=od.mean("price")),
    "map": lambda p: p.map(lambda row: (row.n, row.k, row.x, row.price), schema=BIG),
    "batches": lambda p: p.map_batches(lambda batch: batch, schema=BIG, format="arrow"),
    "computed": lambda p: p.with_columns(y=col("k") * 3 - col("price"), z=col("k").cast(HUGE)),
    "process": lambda p: p.key_by("k").process(
        lambda row, state, emit: emit(row.k, row.x), schema=[("k", LARGE), ("x", HUGE)], state=[("n", int)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_many_digits_are_kept_as_they_are(big, name):
    found = agreed(KEPT[name](od.Pipeline(BIG)), big)
    assert len(found) > 5


@pytest.mark.parametrize("name", ["running", "tumbling", "sessions", "rows"])
def test_state_of_many_digits_is_kept_and_restored(big, name, tmp_path):
    made = KEPT[name](od.Pipeline(BIG))
    expected = run_serial(made, big).table.to_pylist()
    begun = made.run(big.slice(0, 37), end="suspend")
    od.Checkpoint(tmp_path / "state").write(begun.snapshot)
    rest = made.run(big.slice(37), restore=tmp_path / "state")
    assert begun.table.to_pylist() + rest.table.to_pylist() == expected


def test_many_digits_go_between_processes_and_find_their_match(big):
    keyed = od.Pipeline(BIG).key_by("k").scan(total=od.sum("x"))
    assert keyed.run(big, processes=2).table.to_pylist() == run_serial(keyed, big).table.to_pylist()
    names = pa.table(
        {"k": pa.array([Decimal("18446744073709551.610")], pa.decimal128(23, 3)), "name": ["a"]}
    )
    found = agreed(od.Pipeline(BIG).join_lookup(names, "k", "left"), big)
    assert found.column("name").to_pylist() == ["a" if n % 6 == 5 else None for n in range(84)]


def test_what_has_no_128_bits_is_refused_and_says_what_to_do():
    given = od.Pipeline(BIG)
    for refused in (
        lambda: given.window(od.rolling(9), time="n").aggregate(t=od.sum("x")),
        lambda: given.top_k(3, "x"),
        lambda: given.assert_ordered("x"),
        lambda: given.key_by("k").preceding(2, {"y": "x"}),
    ):  # fmt: skip
        with pytest.raises(od.SchemaError, match=r"at most 18 digits. Cast it.*decimal\(18,4\)"):
            refused()
    for divided in (col("x") // 2, col("k") % col("price"), col("price") // col("k")):
        with pytest.raises(od.SchemaError, match="divides decimals of over 18 digits: cast one side"):
            given.with_columns(y=divided)


def test_rubbish_under_a_null_is_no_number():
    """Arrow says nothing of the bytes of a null."""
    halves = pa.py_buffer(b"\x01" + b"\x00" * 15 + b"\x7f" * 16)
    column = pa.Array.from_buffers(PRICE, 2, [pa.py_buffer(b"\x01"), halves])
    data = pa.table([column], names=["x"])
    made = od.Pipeline(data.schema).with_columns(y=col("x") + 1)
    assert made.run(data).table.to_pylist() == [
        {"x": Decimal("0.01"), "y": Decimal("1.01")},
        {"x": None, "y": None},
    ]


@pytest.mark.parametrize("places", [(), ("0.01", "-0.01", None, "99999999.99")])
def test_functions_see_and_return_decimals(places):
    given = [None if one is None else Decimal(one) for one in places]
    data = pa.table([given], schema=pa.schema([("x", PRICE)]))
    rows = od.Pipeline(data.schema).map(lambda row: (row.x,), schema=data.schema)
    whole = od.Pipeline(data.schema).map_batches(lambda batch: batch, schema=data.schema, format="arrow")
    for pipeline in (rows, whole):
        with decimal.localcontext(decimal.Context(prec=3)):  # the user's own
            assert agreed(pipeline, data).column("x").to_pylist() == given


@pytest.mark.parametrize("type_", [PRICE, pa.decimal128(38, 2)])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("1e36", "OverflowError: column 'x' is {}, 1E+36 is out of range"),
        ("-0.001", "ValueError: column 'x' is {}, -0.001 can't be stored exactly"),
        ("7." + "0" * 80 + "1", "ValueError: column 'x' is {}, 7.0"),
        ("NaN", "ValueError: column 'x' is {}, NaN is no number"),
    ],
)
def test_a_decimal_of_a_function_that_does_not_fit_is_told_with_column_and_value(type_, given, words):
    data = pa.table({"x": pa.array([Decimal(1), None], type_)})
    made = od.Pipeline(data.schema).map(
        lambda row: (row.x if row.x else Decimal(given),), schema=data.schema
    )
    with pytest.raises(od.OperatorError) as failed:
        made.run(data)
    assert failed.value.reason == run_serial(made, data).error.reason
    assert failed.value.reason.startswith(words.format(type_))
    assert failed.value.serial == 2


def test_a_whole_number_beyond_64_bits_is_written_as_a_decimal():
    with pytest.raises(od.SchemaError, match=r"beside a decimal write Decimal\(18446744073709551616\)"):
        _ = col("x") > 2**64


def test_a_lookup_by_a_decimal_finds_it_in_another_scale():
    data = pa.table(
        [[1, 2, 3], [Decimal("1.05"), Decimal("7.00"), None]], schema=pa.schema(list(SOURCE)[:2])
    )
    names = pa.table({"price": pa.array([Decimal("7.0"), Decimal("1.1")], pa.decimal128(9, 1)),
                      "name": ["seven", "x"]})  # fmt: skip
    found = agreed(od.Pipeline(data.schema).join_lookup(names, "price", "left"), data)
    assert found.column("name").to_pylist() == [None, "seven", None]


def test_state_of_decimals_is_kept_and_restored(table, tmp_path):
    made = od.Pipeline(SOURCE).key_by("price").scan(
        total=od.sum("rate"), some=od.arg_max("rate", by="n"), kinds=od.count_distinct("rate"),
        mean=od.mean("rate"),
    )  # fmt: skip
    expected = run_serial(made, table).table.to_pylist()
    begun = made.run(table.slice(0, 30), end="suspend")
    od.Checkpoint(tmp_path / "state").write(begun.snapshot)
    rest = made.run(table.slice(30), restore=tmp_path / "state")
    assert begun.table.to_pylist() + rest.table.to_pylist() == expected


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (
            col("rate") * col("rate") * col("rate") * col("rate") * col("rate") * col("rate") * col("rate"),
            "has 42 places, and a decimal 38",
        ),
        (col("price").cast(pa.int64()), "may lose digits"),
        (col("n").cast(PRICE), r"multiply it by a Decimal"),
        (col("price") == "1.5", "do not go together"),
        (col("price") > Decimal("nan"), "no number that a decimal holds"),
        (col("price").isin([Decimal("inf")]), "no number that a decimal holds"),
        (col("rate") > Decimal("1e-39"), "test: the constant 1E-39 has over 38 digits"),
        (col("rate") > Decimal(10) ** 100, r"test: the constant 1.0+E\+100 has over 38 digits"),
        (od.lit(Decimal("0.005"), PRICE), r"decimal128\(10, 2\), 0.005 can't be stored exactly"),
        (col("price").lookup([1, 2]), "must be an integer"),
    ],
)
def test_what_is_refused_says_what_to_do(expr, words):
    with pytest.raises(od.SchemaError, match=words):
        lower(expr, SOURCE, "test")


MEANS = {  # every operator with aggregations, over the 64 rows
    "aggregate": lambda p, a: p.key_by("units").aggregate(**a),
    "final": lambda p, a: p.key_by("units").aggregate(**a, emit="final"),
    "scan": lambda p, a: p.key_by("units").scan(**a),
    "sessions": lambda p, a: p.key_by("units").sessionize("n", 2, aggregate=a),
    "tumbling": lambda p, a: p.window(od.tumbling(16), time="n").aggregate(**a),
    "hopping": lambda p, a: p.window(od.hopping(16, every=4), time="n").aggregate(**a),
    "rolling": lambda p, a: p.window(od.rolling(9), time="n").aggregate(**a),
    "rows": lambda p, a: p.key_by("units").window(od.rows(5)).aggregate(**a),
}


@pytest.mark.parametrize("name", MEANS)
def test_means_are_exact_decimals_whatever_shows_them(table, name):
    """Beside the mean of the same values as Python's Decimal divides and rounds it."""
    given = {"mean": od.mean("price"), "total": od.sum("price"), "known": od.count("price"),
             "rates": od.mean("rate", where=col("price") > 0)}  # fmt: skip
    found = agreed(MEANS[name](od.Pipeline(SOURCE), given), table)
    assert found.schema.field("mean").type == pa.decimal128(14, 6)
    assert found.schema.field("rates").type == pa.decimal128(22, 10)
    assert len(found) > 3
    for row in found.to_pylist():
        if row["known"]:
            with decimal.localcontext(decimal.Context(prec=60)):
                wanted = (row["total"] / row["known"]).quantize(Decimal("1e-6"), decimal.ROUND_HALF_UP)
            assert row["mean"] == wanted
        else:
            assert row["mean"] is None


@pytest.mark.parametrize("sign", [1, -1])
def test_half_a_unit_of_a_mean_is_rounded_away_from_zero(sign):
    values = [Decimal(sign) / 100] + [Decimal(0)] * 31  # 0.0003125
    made = od.Pipeline(pa.schema([("x", PRICE)])).scan(m=od.mean("x"))
    found = agreed(made, pa.table([values], schema=made.source_schema))
    assert found.column("m").to_pylist()[-1] == sign * Decimal("0.000313")


@pytest.mark.parametrize(
    ("given", "made"),
    [((9, 2), (13, 6)), ((14, 0), (18, 4)), ((15, 2), (19, 6)), ((18, 6), (22, 10)), ((36, 2), (38, 4)),
     ((38, 3), (38, 3))],
)  # fmt: skip
def test_a_mean_has_four_more_places_where_they_fit(given, made):
    """Its largest value too."""
    type_ = pa.decimal128(*given)
    most = decimal.Context(prec=60).scaleb(decimal.Decimal(10 ** given[0] - 1), -given[1])
    least = most.copy_negate()
    found = agreed(od.Pipeline(pa.schema([("x", type_)])).scan(m=od.mean("x")),
                   pa.table([[most, least, least]], schema=pa.schema([("x", type_)])))  # fmt: skip
    assert found.schema.field("m").type == pa.decimal128(*made)
    with decimal.localcontext(decimal.Context(prec=60)):
        third = (least / 3).quantize(Decimal(1).scaleb(-made[1]), decimal.ROUND_HALF_UP)
    assert found.column("m").to_pylist() == [most, Decimal(0), third]


def test_a_mean_whose_sum_has_over_38_digits_names_the_row():
    most = Decimal("9" * 35 + ".999")
    source = pa.schema([("x", pa.decimal128(38, 3))])
    data = pa.table([[most, most]], schema=source)
    made = od.Pipeline(source).scan(m=od.mean("x"))
    with pytest.raises(od.OperatorError, match="overflow in mean") as failed:
        made.run(data)
    assert failed.value.serial == run_serial(made, data).error.serial == 2


@pytest.mark.parametrize("function", [od.var, od.std, od.median])
def test_what_would_round_is_refused(function):
    with pytest.raises(od.SchemaError, match="is not defined for decimal128"):
        od.Pipeline(SOURCE).scan(x=function("price"))


def test_values_go_between_their_two_faces_exactly():
    values = [Decimal("-99999999.99"), Decimal("0.00"), None, Decimal("1.05")]
    array = pa.array(values, PRICE)
    units = [-9_999_999_999, 0, None, 105]
    assert storage_values(array) == storage_values(pa.array([Decimal(9), *values], PRICE).slice(1)) == units
    assert from_storage(units, PRICE).equals(array)
    assert [to_python(one, PRICE) for one in units] == values
    assert to_storage(Decimal("1.5"), PRICE, "x") == 150
    for wrong in (Decimal("0.001"), Decimal("1e9"), 1.5, 1, "1.5"):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            to_storage(wrong, PRICE, "x")
    assert evaluate(col("price") + Decimal("0.5"), {"price": 105} | dict.fromkeys(["n", "rate", "units"]),
                    SOURCE) == 155  # fmt: skip
