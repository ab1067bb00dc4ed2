"""Which graphs Spark runs in one node, and why."""

import pyarrow as pa
import pytest

import ordstream as od

pytest.importorskip("pyspark")

from ordstream.spark.layout import must_be_alone, whole

P = od.Pipeline(pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", pa.int64())]))
HIT, MISS = P.branch(od.col("v") > 1)
CUT = od.union(HIT, MISS).key_by("k").scan(c=od.count())
ALONE = od.union(HIT.top_k(1, by="v", name="top"), MISS)
WINDOW = od.union(HIT, MISS).key_by("k").window(od.tumbling(9), time="ts").aggregate(n=od.count())


def test_a_graph_that_is_cut_takes_many_nodes_and_others_say_why_not():
    assert whole(CUT, {}) == must_be_alone(CUT, {}) == ""
    assert "top has one state for all rows" in whole(ALONE, {})
    assert "top has one state for all rows" in must_be_alone(ALONE, {})
    assert whole(P.top_k(1, by="v"), {}) == ""  # a line is cut, if into one node


def test_a_graph_with_a_clock_takes_them_where_rows_are_sorted_by_it():
    assert must_be_alone(WINDOW, {}, ["ts", "k"]) == ""
    assert "order_by begins with its column, 'ts'" in must_be_alone(WINDOW, {}, ["k"])
