"""What a function's bytecode says of the columns that it reads; and the rows that it then gets."""

from __future__ import annotations

import functools
import sys
from datetime import datetime

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.columns_read import columns_read
from ordstream.operators.error_policy import batches_again, gone_through_again, tried_again
from ordstream.testing import run_serial

NAMES = ["a", "b", "c", "__d", "_asdict"]


def one(row):
    return row.a


def two(row, state, emit):
    if row.b > 3 and state.n:
        emit(row.a, other=row.b)


def none(row):
    return 1


def loops(row):
    total = 0
    for _ in range(3):
        total += row.c.bit_length() if row.a else 0
    return total


def generator(row):
    for i in range(2):
        yield row.a, i


def handed_on(row):
    return len(row)


def unpacked(row):
    a, *_ = row
    return a


def by_place(row):
    return row[0]


def inner(row):
    return [row.a for _ in range(2)] + [(lambda: row.b)()]


def bound_again(row):
    row = row.a
    return row.b


def kept(row):
    other = row
    return other.a


def by_name(row):
    return getattr(row, "a")  # noqa: B009


def around(row):
    return locals()["row"].b or row.a


def in_brackets(row):
    return row["a"] + row["c"].x


def in_both_ways(row, state, emit):
    emit(row.a if row["b"] else row["a"])


def unknown_in_brackets(row):
    return row["nothing"]


def mangled_in_brackets(row):
    return row["__d"]


def computed_in_brackets(row):
    return row["a" if row.b else "c"]


def written(row):
    row["a"] = 1


def added_to(row):
    row["a"] += 1


def compared(row):
    return row.a if row else 0


def method_of_rows(row):
    return row.nothing


def mangled(row):
    return row.__d


def several(*row):
    return row.a


class Holder:
    def method(self, row):
        return row.b

    def __call__(self, row):
        return row.a


def named_on_the_way(row):
    return (one := row.a) + row.c.x + one


def in_a_list(row):
    return [row.a + i for i in range(3)]


def hidden_in_a_list(row):
    return [row for row in row.a]


def in_order(row, other):
    return row.a, other, row.b, other.c


@pytest.mark.parametrize(
    ("fn", "found"),
    [
        (one, {0}), (two, {0, 1}), (none, set()), (loops, {0, 2}), (generator, {0}), (in_order, {0, 1}),
        (in_brackets, {0, 2}), (in_both_ways, {0, 1}), (named_on_the_way, {0, 2}),
        # inner functions before 3.12
        (in_a_list, {0} if sys.version_info >= (3, 12) else None),
        (hidden_in_a_list, None if sys.version_info >= (3, 12) else {0}),
        (Holder().method, {1}), (lambda row: row.c or row.a, {0, 2}),
        *((fn, None) for fn in (handed_on, unpacked, by_place, inner, bound_again, kept, by_name, around,
                                compared, method_of_rows, mangled, several,
                                Holder(), print, unknown_in_brackets, mangled_in_brackets,
                                computed_in_brackets, written, added_to,
                                functools.partial(in_order, other=1), functools.lru_cache(one))),
    ],
)  # fmt: skip
def test_columns(fn, found):
    if fn is inner and columns_read(fn, NAMES) is not None:
        pytest.fail("a variable of an inner function")
    assert columns_read(fn, NAMES) == found


DATA = pa.table({
    "a": list(range(700)), "b": [str(i) for i in range(700)], "c": [i / 2 for i in range(700)],
    "at": pa.array([10**18 if i in (5, 400) else i for i in range(700)], pa.timestamp("s")),
})  # fmt: skip
PIPELINE = od.Pipeline(DATA.schema)
OUT = {"x": int, "y": str}


def tuples(table):
    return list(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.parametrize("chunk_rows", [1, 100, 4096])
def test_a_function_may_keep_its_rows(chunk_rows):
    """The row object is used again only where nobody else has it."""
    rows, numbers = [], []

    def whole(row):
        rows.append(row)
        return tuple(row)[:2]

    def looks(row):
        numbers.append((row.a, row.b))
        return row.a, row.b

    good = PIPELINE.select("a", "b", "c")
    for fn in (whole, looks):
        table = good.map(fn, schema=OUT).run(DATA, workers=1, chunk_rows=chunk_rows).table
        assert table.column("y").to_pylist() == DATA.column("b").to_pylist()
    assert [tuple(row) for row in rows] == tuples(DATA.drop_columns(["at"]))
    assert rows[3].c == 1.5
    assert numbers == [(i, str(i)) for i in range(700)]


def test_a_generator_keeps_its_row():
    def later(row):
        yield row.a, "1"
        yield row.a, row.b

    found = PIPELINE.flat_map(later, schema=OUT).run(DATA, workers=1)
    assert tuples(found.table) == [out for i in range(700) for out in ((i, "1"), (i, str(i)))]


@pytest.mark.parametrize("on_error", ["skip", "fail"])
def test_values_that_python_does_not_have(on_error):
    """A date after 9999 is an error of its row, where the function looks at it."""

    def year(row):
        return row.a, str(row.at)

    pipeline = PIPELINE.map(year, schema=OUT, on_error=on_error)
    if on_error == "skip":
        found = pipeline.run(DATA, workers=1)
        assert found.table.equals(run_serial(pipeline, DATA).table)
        assert found.table.column("x").to_pylist() == [i for i in range(700) if i not in (5, 400)]
        assert tuples(found.table)[0] == (0, str(datetime(1970, 1, 1)))
        return
    with pytest.raises(od.OperatorError, match="serial 6"):
        pipeline.run(DATA, workers=1)


def test_values_that_nobody_looks_at():
    """Then they are no error, here and in the reference."""

    def number(row):
        return row.a, "n"

    pipeline = PIPELINE.map(number, schema=OUT)
    assert pipeline.run(DATA, workers=1).table.equals(run_serial(pipeline, DATA).table)


def test_more_columns_than_slots():
    names = [f"c{i}" for i in range(80)]
    data = pa.table({name: [i, i + 1] for i, name in enumerate(names)})
    space: dict[str, object] = {}
    exec(f"def fn(row):\n    return (({' + '.join(f'row.{name}' for name in names)}),)", space)
    found = od.Pipeline(data.schema).map(space["fn"], schema={"x": int}).run(data, workers=1)
    assert tuples(found.table) == [(sum(range(80)),), (sum(range(80)) + 80,)]


@pytest.mark.parametrize("again", [tried_again, gone_through_again, batches_again])
@pytest.mark.parametrize("type_", [pa.int64(), pa.list_(pa.int64())], ids=str)
def test_a_function_that_is_tried_again_reads_what_it_reads(again, type_):
    """With `od.retry` it got all columns."""
    schema = () if again is batches_again else (pa.schema([(name, type_) for name in NAMES]),)
    for fn in (one, loops, generator):
        assert columns_read(fn, NAMES) is not None
        assert columns_read(again(fn, 2, *schema), NAMES) == columns_read(fn, NAMES)
