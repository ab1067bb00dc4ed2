"""Blocks that states of a bucket own: nobody's bytes change, and what is spare is bounded."""

from __future__ import annotations

import random

import pytest

held = pytest.importorskip("ordstream._core.lab.testing_held", reason="the core is not built")

LIMITS = range(held.MOST - 1, held.MOST + 2)
SIZES = [0, 1, 15, 16, 17, 255, 256, 257, 319, 320, 321, 4_096, 5_000, *LIMITS]
keeps_blocks = pytest.mark.skipif(not held.BLOCKS_KEPT, reason="sanitizers see each block come and go")


@pytest.mark.parametrize("seed", range(10))
def test_bytes_of_a_block_are_its_owners(seed):
    draw, memory = random.Random(seed), held.PyHeld()
    taken, used, most = [], 0, 0
    for step in range(4_000):
        if taken and draw.random() < (0.4 if step < 2_000 else 0.6):
            block, size, fill = taken.pop(draw.randrange(len(taken)))
            assert memory.give(block, size) == bytes([fill]) * size
            used -= size
        else:
            size, fill = draw.choice([draw.choice(SIZES), draw.randrange(2_000)]), draw.randrange(256)
            taken.append((memory.take(size, fill), size, fill))
            used += size
        most = max(most, used)
        assert memory.bytes == used
        assert 0 <= memory.spare <= max(most * 5 // 4 - used, held.LEAST)
    for block, size, fill in taken:
        assert memory.give(block, size) == bytes([fill]) * size
    assert memory.bytes == 0
    memory.free_spare()
    assert memory.spare == 0


@keeps_blocks
@pytest.mark.parametrize("size", [size for size in SIZES if size <= held.MOST])
def test_a_block_that_comes_back_serves_the_next_of_its_size(size):
    memory = held.PyHeld()
    block = memory.take(size, 1)
    memory.give(block, size)
    assert memory.spare >= max(size, 1)
    assert memory.take(size, 2) == block
    assert memory.spare == 0
    memory.give(block, size)


@keeps_blocks
def test_states_that_come_and_go_in_waves_use_the_same_blocks():
    memory = held.PyHeld()
    first = {memory.take(100, 1) for _ in range(100_000)}
    for _ in range(5):
        for block in first:
            memory.give(block, 100)
        assert memory.spare >= 100 * len(first) * 3 // 4
        again = {memory.take(100, 1) for _ in range(100_000)}
        assert len(first & again) >= len(first) * 3 // 4
        first = again
    for block in first:
        memory.give(block, 100)


def test_what_is_spare_shrinks_with_the_states():
    memory = held.PyHeld()
    for block in [memory.take(100, 1) for _ in range(100_000)]:
        memory.give(block, 100)
    assert memory.bytes == 0
    for _ in range(1_000):
        for block in [memory.take(100, 1) for _ in range(1_000)]:
            memory.give(block, 100)
    assert memory.spare <= held.LEAST + 1_000 * 112 * 5 // 4 + 112


@keeps_blocks
def test_sizes_that_nobody_asks_for_any_more_give_way():
    memory, most = held.PyHeld(), 10_000_000
    for size in (1000, 100, 200, 60_000, 300, 20):
        before = memory.spare
        blocks = [memory.take(size, 1) for _ in range(most // size)]
        assert memory.bytes + memory.spare <= most * 5 // 4 + held.LEAST
        for block in blocks:
            memory.give(block, size)
        assert before == 0 or memory.spare <= most * 5 // 4
    for block in [memory.take(1000, 1) for _ in range(most // 1000)]:
        memory.give(block, 1000)
    again = {memory.take(1000, 1) for _ in range(most // 1000)}
    assert memory.spare <= most // 2  # what is spare is of this size mostly, and used
    for block in again:
        memory.give(block, 1000)


@keeps_blocks
def test_a_few_small_states_behind_large_ones_use_their_own_blocks():
    memory = held.PyHeld()
    for block in [memory.take(1000, 1) for _ in range(10_000)]:
        memory.give(block, 1000)
    for _ in range(1_000):
        blocks = [memory.take(100, 1) for _ in range(1_000)]
        for block in blocks:
            memory.give(block, 100)
    assert memory.spare <= 2 * held.LEAST + 112_000
    assert {memory.take(100, 1) for _ in range(500)} & set(blocks)


@keeps_blocks
def test_one_size_wastes_a_quarter_at_most():
    for size in range(1, held.MOST + 1, 13):
        memory = held.PyHeld()
        memory.give(memory.take(size, 1), size)
        assert size <= memory.spare <= max(size + 15, size * 5 // 4)


def test_large_blocks_are_not_kept():
    memory = held.PyHeld()
    memory.give(memory.take(held.MOST + 1, 1), held.MOST + 1)
    assert memory.spare == 0
