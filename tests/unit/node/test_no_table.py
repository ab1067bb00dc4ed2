"""Those who take a run, or what it gave, for a table are told where the rows are."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.fragments.process_stream import ProcessStream

TABLE = pa.table({"x": [1, 2, 3]})
PIPELINE = od.Pipeline(TABLE.schema).filter(od.col("x") > 1)


@pytest.mark.parametrize("name", ["table", "to_pandas", "collect", "to_arrow"])
def test_several_outputs_name_their_tables(name):
    result = PIPELINE.run(TABLE, outputs={"a": PIPELINE, "b": PIPELINE})
    with pytest.raises(AttributeError, match=rf"attribute '{name}'; .* here result\['a'\], result\['b'\]"):
        getattr(result, name)
    assert not hasattr(result, "__arrow_c_stream__")


def test_a_stream_says_how_it_is_read():
    with PIPELINE.stream(TABLE) as stream:
        with pytest.raises(AttributeError, match=r"'collect'; its rows are pyarrow\.table\(stream\)"):
            stream.collect()
        with pytest.raises(AttributeError, match=r"no attribute '_nothing'$"):
            stream._nothing  # noqa: B018
        assert pl.DataFrame(stream).rows() == [(2,), (3,)]
    with PIPELINE.stream(TABLE, outputs={"a": PIPELINE}) as stream:
        with pytest.raises(AttributeError, match="it gives pairs: `for name, batch in stream`"):
            stream.to_pandas()
        with pytest.raises(TypeError, match="it gives pairs: `for name, batch in stream`"):
            pd.DataFrame(stream)
        assert [name for name, _ in stream] == ["a"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stop", r"it ends by close\(\), or from another thread by cancel\(\)$"),
        ("awaitTermination", "it runs as its batches are read: a loop over it ends when it has"),
        ("lastProgress", "progress says how far it is, report what it did$"),
    ],
)
def test_who_looks_for_the_end_of_a_stream_is_not_told_of_its_rows(name, text):
    with PIPELINE.stream(TABLE) as stream, pytest.raises(AttributeError, match=f"'{name}'; {text}"):
        getattr(stream, name)
    with PIPELINE.stream(TABLE, outputs={"a": PIPELINE}) as stream:
        with pytest.raises(AttributeError, match=f"'{name}'; {text}"):
            getattr(stream, name)
        list(stream)
    result = PIPELINE.run(TABLE, outputs={"a": PIPELINE})
    with pytest.raises(AttributeError, match=rf"'{name}'; each output has a table of its own"):
        getattr(result, name)


def test_pandas_frame_of_a_result_is_answered():
    """It said "DataFrame constructor not properly called!", and of several outputs it held their names."""
    result = PIPELINE.run(TABLE)
    with pytest.raises(TypeError, match=r"pandas\.DataFrame takes no Arrow data: .* \.to_pandas\(\)"):
        pd.DataFrame(result)
    with pytest.raises(TypeError, match=r"pandas\.DataFrame takes no Arrow data: .*result\['a'\]"):
        pd.DataFrame(PIPELINE.run(TABLE, outputs={"a": PIPELINE}))
    with pytest.raises(TypeError, match="is no array"):
        np.asarray(result)
    with pytest.raises(TypeError, match="a Result has no items"):
        list(result)


def test_results_are_still_tables_to_others_and_can_be_copied():
    result, outputs = PIPELINE.run(TABLE), PIPELINE.run(TABLE, outputs={"a": PIPELINE})
    assert pa.table(result).to_pylist() == pl.DataFrame(result).to_dicts() == [{"x": 2}, {"x": 3}]
    assert PIPELINE.run(result).table.equals(result.table)
    for made in (copy.copy(outputs), copy.deepcopy(outputs), pickle.loads(pickle.dumps(outputs))):
        assert made["a"].equals(outputs["a"])


def test_a_stream_shows_its_columns_or_outputs():
    with PIPELINE.stream(TABLE) as stream:
        assert repr(stream) == "<ordstream.Stream of x>"
    with PIPELINE.stream(TABLE, outputs={"a": PIPELINE, "b": PIPELINE}) as stream:
        assert repr(stream) == "<ordstream.OutputStream of a, b>"
    stream = ProcessStream.__new__(ProcessStream)
    assert repr(stream) == "<ordstream.ProcessStream of >"
    stream.schema = TABLE.schema
    assert repr(stream) == "<ordstream.ProcessStream of x>"
