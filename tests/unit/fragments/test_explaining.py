"""What `explain` says of a run over processes."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od

SCHEMA = pa.schema([("user", pa.int64()), ("item", pa.int64())])
FRONT = od.Pipeline(SCHEMA).filter(od.col("item") > 0)
PIPELINE = FRONT.key_by("user").count().key_by("count").scan(n=od.count())
IN_BLOCKS = "rows to nodes in blocks, each to the one with the fewest bytes to do"


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, [IN_BLOCKS, "by hash of user", "by hash of count"]),
        ({"grouping": "round_robin"}, ["rows to nodes row by row in turn"]),
        ({"grouping": "blocks"}, ["rows to nodes block by block in turn"]),
        ({"grouping": "posg", "grouping_key": "item"}, ["by POSG, from what tuples of equal item took"]),
        (
            {"grouping": od.DKG(), "grouping_key": "user"},
            ["by a map of user that DKG learns while rows come"],
        ),
        ({"grouping": {"count_2": od.DKG().fit([1, 2], 3)}}, [IN_BLOCKS, "by the KeyMap given, of user"]),
        (
            {"balance": od.Mixed()},
            [IN_BLOCKS, "by a ring and a routing table of user", "where that pays", "table of count"],
        ),
    ],
)
def test_what_sends_rows_to_processes_is_named(options, lines):
    text = PIPELINE.explain(processes=3, **options)
    assert text.startswith("3 nodes, processes of this machine\n")
    at = 0
    for line in lines:
        assert line in text[at:]
        at = text.index(line, at)


def test_what_a_run_would_refuse_explain_refuses():
    with pytest.raises(od.PlanError, match="give processes="):
        PIPELINE.explain(grouping="posg")
    with pytest.raises(od.PlanError, match="give one"):
        PIPELINE.explain(processes=2, balance=od.Mixed(), grouping={"count_2": od.DKG().fit([1, 2], 2)})
    with pytest.raises(od.PlanError, match="no option 'workers'"):
        PIPELINE.explain(processes=2, workers=2)
    assert PIPELINE.explain(processes=1) == PIPELINE.explain()
