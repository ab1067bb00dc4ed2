"""Rows of a source that may block: when they go, and that none is left behind."""

from __future__ import annotations

import queue
import threading

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.fragments import source_blocks
from ordstream.fragments.driver import IDLE_BLOCKS_AHEAD, Driver
from ordstream.fragments.grouping import groupings_of
from ordstream.fragments.processes import prepare
from ordstream.fragments.source_blocks import GATHER_S, SourceBlocks
from ordstream.fragments.topology import Topology
from ordstream.ground.ordertags import in_front

SOURCE = pa.schema([("n", pa.int64())])


def batch(first, rows):
    return pa.RecordBatch.from_pydict({"n": range(first, first + rows)}, schema=SOURCE)


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def given(monkeypatch):
    """A clock, and a source whose batches its own thread has given already, but for the last."""
    clock = Clock()
    monkeypatch.setattr(source_blocks, "time", clock)

    def made(sizes, **more):
        reached, on = threading.Event(), threading.Event()

        def source():
            for size in sizes:
                yield batch(0, size)
            reached.set()
            on.wait(60)

        blocks = SourceBlocks(source(), SOURCE, **more)
        blocks.start()
        assert reached.wait(60)
        stops.append((blocks, on))
        return blocks, on

    stops = []
    yield clock, made
    for blocks, on in stops:
        on.set()
        blocks.stop()


def test_few_rows_of_a_source_that_may_block_wait_a_moment_for_more(given):
    clock, made = given
    blocks, _ = made([2, 3])
    assert blocks.ready()
    assert blocks.due_in() == pytest.approx(GATHER_S)
    clock.now += GATHER_S / 2
    assert 0 < blocks.due_in() < GATHER_S
    clock.now += GATHER_S
    assert blocks.due_in() == 0
    assert blocks.next()[1].num_rows == 5


def test_a_whole_block_and_the_end_go_at_once(given):
    _, made = given
    assert made([2, 3], block_rows=5)[0].due_in() == 0
    blocks, on = made([])
    assert not blocks.ready()
    on.set()
    blocks.thread.join(60)
    assert blocks.ready()
    assert blocks.due_in() == 0
    table = SourceBlocks(batch(0, 3), SOURCE)
    assert table.due_in() == 0


@pytest.mark.parametrize("in_turns", [False, True])
def test_no_batch_is_left_behind_by_a_reader_that_waits_to_be_woken(in_turns):
    """The source's thread wakes it once for all that is there."""
    woken, taken, count = threading.Event(), threading.Event(), 50 if in_turns else 5_000

    def source():
        for k in range(count):
            yield batch(k, 1)
            if in_turns:
                taken.wait(60)
                taken.clear()

    blocks = SourceBlocks(source(), SOURCE, block_rows=7, wake=woken.set)
    blocks.start()
    rows = 0
    while not blocks.over:
        if not blocks.ready():
            assert woken.wait(60), f"{rows} rows came"
            woken.clear()
            continue
        found = blocks.next()
        rows += 0 if found is None else found[1].num_rows
        taken.set()
    assert rows == count


class Receiver:
    """A link that counts."""

    def __init__(self):
        self.got = 0

    def rows(self, rows):
        self.got += rows.num_rows
        return 10

    def low(self, tag):
        pass

    def end(self, tag):
        pass


@pytest.fixture
def over_two_nodes(monkeypatch):
    """Makes a caller of two nodes for a pipeline; its driver, its clock, and what sends so many rows and
    says how many have gone.
    """
    clock, came, stops = Clock(), threading.Semaphore(0), []
    monkeypatch.setattr(source_blocks, "time", clock)

    def made(pipeline, grouping=None):
        given = queue.SimpleQueue()
        fragments, options, _ = prepare(pipeline, {}, "nodes")
        groupings = groupings_of({"grouping": grouping} if grouping else {}, fragments, 2)
        blocks = SourceBlocks(iter(given.get, None), SOURCE, wake=came.release)
        links = [Receiver(), Receiver()]
        topology = Topology(fragments, 2, options, groupings=groupings)
        driver = Driver(topology, blocks, links, lambda *size: None, SOURCE, tags=False)
        blocks.start()
        stops.append((given, blocks))

        def sent(more=1):
            for _ in range(more):
                given.put(batch(0, 1))
                assert came.acquire(timeout=60)
            driver.step()
            return sum(link.got for link in links)

        return driver, clock, sent

    yield made
    for given, blocks in stops:
        given.put(None)
        blocks.stop()


@pytest.fixture
def keyed(over_two_nodes):
    return over_two_nodes(od.Pipeline(SOURCE).key_by("n").scan(seen=od.count()))


def test_rows_gather_while_two_blocks_are_on_their_way_through_all_nodes(keyed):
    driver, clock, sent = keyed
    assert [sent(), sent(), sent()] == [1, 2, 2]
    assert driver.due_in == pytest.approx(GATHER_S)
    for node in range(2):
        assert sent(0) == 2
        driver.merge.set_low(node, in_front(2))
    assert sent(0) == 3  # the first is through all nodes
    assert sent() == 3
    clock.now += GATHER_S
    assert sent(0) == 4  # none is, and the row has waited


def test_rows_gather_less_where_first_nodes_have_taken_all(keyed):
    """What is on its way then is in the nodes behind, and no first node is behind with its rows."""
    driver, clock, sent = keyed

    def taken():
        for node, channel in enumerate(driver.out._channels):
            driver.out.acknowledged(node, channel.outstanding)

    for count in range(1, IDLE_BLOCKS_AHEAD + 1):
        assert sent() == count
        taken()
    assert sent() == IDLE_BLOCKS_AHEAD  # so many are on their way
    assert driver.due_in == pytest.approx(GATHER_S)
    for node in range(2):
        driver.merge.set_low(node, in_front(2))
    assert sent(0) == IDLE_BLOCKS_AHEAD + 1
    assert sent() == IDLE_BLOCKS_AHEAD + 1  # a node has a row, and more than two are on their way
    clock.now += GATHER_S
    assert sent(0) == IDLE_BLOCKS_AHEAD + 2


@pytest.mark.parametrize("grouping", [None, "round_robin", "blocks"])
def test_rows_that_any_node_may_get_wait_only_while_each_has_some(over_two_nodes, grouping):
    driver, _, sent = over_two_nodes(od.Pipeline(SOURCE).map(tuple, schema=SOURCE), grouping)
    assert [sent(), sent(), sent()] == [1, 2, 2]
    assert driver.due_in == pytest.approx(GATHER_S)
    driver.out.acknowledged(1, 10)
    assert sent(0) == 3


def sizes_of(rows: int, nodes: int, at_once: int) -> list[int]:
    batches = [batch(first, min(at_once, rows - first)) for first in range(0, rows, at_once)]
    blocks = SourceBlocks(batches, SOURCE, own_thread=False)
    blocks.shared_by(nodes)
    found = []
    while not blocks.over:
        one = blocks.next()
        if one is not None:
            found.append(one[1].num_rows)
    assert sum(found) == rows
    return found


@pytest.mark.parametrize("rows", [20, 600, 16_000])
@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_few_rows_are_shared_by_all_nodes(rows, nodes):
    """A table of up to 16,384 rows went to one node, as one block."""
    found = sizes_of(rows, nodes, rows)
    assert max(found) <= -(-rows // (4 * nodes))
    assert found[-1] <= max(1, rows // (8 * nodes))


@pytest.mark.parametrize("at_once", [10_000, 65_536, 2_000_000])
def test_many_rows_go_in_whole_blocks(at_once):
    """A block costs a step of every node."""
    found = sizes_of(2_000_000, 2, at_once)
    assert len(found) < 2 * 2_000_000 / min(at_once, source_blocks.BLOCK_ROWS)


def test_a_burst_is_shared_too(given):
    """However much came before."""
    _, made = given
    blocks, _ = made([100_000, 1_500])
    blocks.shared_by(2)
    while blocks.rows < 100_000:
        blocks.next()
    found = []
    while blocks.rows < 101_500:
        found.append(blocks.next()[1].num_rows)
    assert max(found) <= source_blocks.LIVE_PART
