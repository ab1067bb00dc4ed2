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
    with pytest.raises(od.PlanError, match="workers must be 0"):
        PIPELINE.explain(processes=2, workers=2, grouping="posg", grouping_key="item")
    with pytest.raises(od.PlanError, match="scheduler must be one of"):
        PIPELINE.explain(scheduler="fifo")
    with pytest.raises(od.PlanError, match="unknown option 'steps'"):
        PIPELINE.explain(steps=True)
    assert PIPELINE.explain(processes=1) == PIPELINE.explain()


def test_options_of_a_run_that_change_nothing_are_taken():
    """What is given to `run` can be given to `explain`."""
    every = od.every("item", 5)
    for options in ({}, {"processes": 2}, {"nodes": 2}):
        assert PIPELINE.explain(**options, punctuate=every, workers=2, merge_by=None) == PIPELINE.explain(
            **options
        )
    assert PIPELINE.explain(emit=None, processes=None) == PIPELINE.explain()
    with pytest.raises(od.PlanError, match="leave outputs= out, and explain each"):
        PIPELINE.explain(outputs={"all": PIPELINE})


def test_nodes_and_processes_are_not_given_together():
    with pytest.raises(od.PlanError, match=r"nodes= is the cut in Spark, processes= .*: give one"):
        PIPELINE.explain(nodes=2, processes=2)


@pytest.mark.parametrize("given", ["anything", {"user": od.Mixed()}, 0.08])
def test_one_process_refuses_a_balance_that_several_refuse(given):
    for pipeline in (PIPELINE, FRONT):
        for processes in (1, 2):
            with pytest.raises(od.PlanError, match="balance must be one policy for all operators"):
                pipeline.run(pa.table({"user": [1], "item": [1]}), processes=processes, balance=given)
    with pytest.raises(od.PlanError, match="no operator of this pipeline has a key"):
        FRONT.explain(processes=1, balance=od.Mixed())
    assert PIPELINE.explain(processes=1, balance=od.Mixed()) == PIPELINE.explain()
