"""ordstream.fragments.channels: what rows are made of before they are sent."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.fragments.channels import without_views
from ordstream.testing import run_serial

NOTHING = [[None, None], [None], None, [], [None, None]]
BESIDE = {
    "list": pa.array(NOTHING, pa.list_(pa.null())),
    "struct": pa.array([None if one is None else {"n": one} for one in NOTHING]),
}


@pytest.mark.parametrize("view", [pa.string_view(), pa.binary_view()], ids=str)
@pytest.mark.parametrize("beside", BESIDE)
def test_columns_beside_a_view_stay_as_they_are(view, beside):
    """Arrow's cast of a whole batch makes lists of nulls that end behind their elements."""
    rows = pa.record_batch({"v": pa.array(["a", "b", None, "d", "e"]).cast(view), "x": BESIDE[beside]})
    for part in (rows, rows.slice(1), rows.slice(1, 0)):
        found = without_views(part)
        found.validate(full=True)
        assert found.to_pylist() == part.to_pylist()
        assert found.schema.field("x").type == rows.schema.field("x").type
        assert not {pa.string_view(), pa.binary_view()} & {*found.schema.types}
    plain = rows.select(["x"])
    assert without_views(plain) is plain


def test_lists_of_nulls_beside_a_view_go_between_processes():
    """There were fewer elements than the lists say where these have more than one each."""
    n = 40
    views, values = pa.array(["a"] * n, pa.string_view()), pa.array([[None] * 3] * n, pa.list_(pa.null()))
    rows = pa.table({"v": views, "x": values, "k": [at % 7 for at in range(n)]})
    pipeline = od.Pipeline(rows.schema).key_by("k").tail(2)
    assert pipeline.run(rows, processes=2).table.equals(run_serial(pipeline, rows).table)
