"""Executors that are processes of their own, in a session of their own kind: the programs in
tests/spark_tools.py and tests/spark_copies.py.
"""

import os

import pytest
import spark_cancel
import spark_copies
import spark_losses
import spark_tools
from spark_tools import in_own_executors

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

# seconds; as in test_cut.py
LONGEST_AFTER_CANCEL = 20.0


def test_executors_that_are_processes_of_their_own(java, tmp_path):
    found = in_own_executors(spark_tools.__file__, tmp_path, spark_cancel.__file__)
    for nodes in (2, 3):
        assert found[f"equal {nodes}"]
        assert found[f"tags {nodes}"]
        assert [found[f"reports {nodes}"].count(r) for r in found[f"reports {nodes}"]] == [1] * len(
            found[f"reports {nodes}"]
        )
    assert (tmp_path / "flag").exists()
    assert found["executors"] == 2
    assert found["presorted"] == 0
    assert found["attempts 2"] >= 1
    assert (
        found["explain"]
        == "2 nodes: plain Python functions: one node per core; a node works on the task's own thread"
    )
    for turn in (1, 2):
        assert found[f"grouped {turn}"]
        assert found[f"killed {turn}"]
    assert found["learnt"] == [True, ["scan_5"]]
    # to executors that hold the driver's host for another one it makes no difference, but that one node has
    # no fragments
    (equal, (alone,), told), *others = found["elsewhere"]
    assert (equal, told, alone[0]) == (True, True, None)
    for heard in others:
        assert heard == [True, found["reports 2"], True]
    after = {name: value for name, value in found.items() if name.startswith("cancel")}
    print(after)
    assert len(after) == (3 if spark_tools.LONG else 2)
    assert max(after.values()) < LONGEST_AFTER_CANCEL


@pytest.mark.skipif("ORDSTREAM_LONG" not in os.environ, reason="the long form: ORDSTREAM_LONG=1 make test")
@pytest.mark.timeout(600)
def test_a_copy_that_overtakes_a_task_leaves_every_row_there_once(java, tmp_path):
    """Of a result, of written files and of a stream."""
    found = in_own_executors(spark_copies.__file__, tmp_path, spark_losses.__file__, seconds=580)
    assert found["equal"] == dict.fromkeys(found["equal"], True)
    assert len(found["equal"]) == 4
    # a copy came first in each job, and the other attempt was killed
    assert found["overtook"]["batch"] >= 3
    assert found["overtook"]["stream"] >= 1
    for counts in found["tuples"].values():  # nodes report once, whatever copies of them there were
        assert sum(counts) == spark_copies.ROWS
