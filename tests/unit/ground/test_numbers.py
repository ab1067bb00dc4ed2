"""Arrow arrays over NumPy's memory, without pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import ordstream
from ordstream.ground.numbers import byte_strings, dtype_of, integers, mask, truth, values


@pytest.mark.parametrize("type_", ["int32", "int64", "uint64"])
def test_integers_are_those_of_the_array(type_):
    values = np.arange(10, dtype=type_)
    assert integers(values).equals(pa.array(values))
    assert integers(values[::3]).equals(pa.array(values[::3]))
    assert integers(values[:0]).equals(pa.array(values[:0]))


def test_an_array_of_another_type_is_refused():
    with pytest.raises(KeyError):
        integers(np.zeros(3))


@pytest.mark.parametrize("count", [0, 1, 8, 19])
def test_a_mask_has_the_same_truth_values(count):
    values = np.arange(count) % 3 == 0
    assert mask(values).equals(pa.array(values, pa.bool_()))


@pytest.mark.parametrize("given", [[], [b""], [b"ab", b"", b"\x00\xff"]])
def test_byte_strings_are_a_binary_array(given):
    found = byte_strings(given)
    found.validate(full=True)
    assert found.equals(pa.array(given, pa.binary()))


class Long(bytes):
    def __len__(self):
        return 1 << 30


def test_byte_strings_of_two_gigabytes_are_refused():
    with pytest.raises(OverflowError, match="2 byte strings have 2,147,483,648 bytes"):
        byte_strings([Long(), Long()])


@pytest.mark.parametrize("start", [0, 3, 8, 19])
def test_numbers_and_truth_values_are_those_of_the_array(start):
    numbers = pa.array([k if k % 5 else None for k in range(19)], pa.int16()).slice(start)
    there = truth(numbers.is_valid())
    assert there.tolist() == [value is not None for value in numbers.to_pylist()]
    assert values(numbers)[there].tolist() == [value for value in numbers.to_pylist() if value is not None]


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    + [pa.float16(), pa.float32(), pa.float64()],
    ids=str,
)
def test_dtypes_are_those_of_the_arrays(kind):
    assert dtype_of(kind) == pa.array([1, 2], pa.int8()).cast(kind).to_numpy().dtype


def test_nothing_asks_arrow_for_a_dtype():
    """Before 26, pyarrow needs pandas for it: where that is not installed, no pipeline ran."""
    package = Path(ordstream.__file__).parent
    found = [file for kind in ("py", "pyx") for file in package.rglob(f"*.{kind}")]
    assert found
    assert not [str(file) for file in found if ".to_pandas_dtype(" in file.read_text()]


NODES = """
import sys
import numpy as np
import pyarrow as pa
import ordstream as od
from ordstream.balance.keys import key_words
from ordstream.fragments.same_process import run_here
from ordstream.ground.numbers import integers

def twice(row, state, emit):
    emit(row.user, row.item)
    emit(row.user, row.item + 1)

schema = pa.schema([("user", pa.int64()), ("item", pa.int64())])
rows = [integers(np.arange(100) % 7), integers(np.arange(100) % 5)]
data = pa.RecordBatch.from_arrays(rows, schema=schema)
for kind in (pa.int64(), pa.float64(), pa.string()):
    assert len(key_words(rows[0].cast(kind))) == 100  # as POSG asks in the middle of a stream
pipeline = (
    od.Pipeline(schema)
    .key_by("user").process(twice, schema=schema, state={"n": pa.int64()})
    .key_by("item").scan(of=od.count())
)
found = run_here(pipeline, data, 2, {}, block_rows=10)
assert found.table.num_rows == 200

def seen(row, state, emit):
    state.append(row.item)
    emit(row.user, len(state))

looked_at = []
kept = od.codec(lambda state: looked_at.append(1) or bytes(state), list, list)
text = pa.schema([("user", pa.string()), ("item", pa.int64())])
users = integers(np.arange(800) % 97 % 13)
data = pa.RecordBatch.from_arrays([users.cast(pa.string()), users], schema=text)
keyed = od.Pipeline(text).key_by("user").process(seen, schema=text, state=kept)
how = {"balance": od.Mixed(0.01), "interval": 200}
assert run_here(keyed, data, 2, {}, block_rows=50, **how).table.num_rows == 800 and looked_at
print("pandas" in sys.modules)
"""


def test_nodes_of_a_cut_do_not_load_pandas():
    """It is there for others, and takes longer to load than all that a node needs."""
    pytest.importorskip("pandas")
    ran = subprocess.run([sys.executable, "-c", NODES], capture_output=True, text=True, check=False)
    assert ran.stdout == "False\n", ran.stdout + ran.stderr
