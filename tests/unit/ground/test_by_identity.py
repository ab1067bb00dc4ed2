"""Results remembered by identity."""

from __future__ import annotations

from ordstream.ground.by_identity import MOST, by_identity


def test_a_value_is_looked_at_once_and_an_equal_one_again():
    seen = []

    @by_identity
    def length(value):
        seen.append(value)
        return len(value)

    one, other = [1, 2], [1, 2]
    assert [length(one), length(one), length(other), length(one)] == [2] * 4
    assert len(seen) == 2


def test_the_identity_of_a_value_that_is_gone_means_nothing():
    """What is made where a forgotten value lay has its own result."""

    @by_identity
    def first(value):
        return value[0]

    for k in range(10 * MOST):
        assert first([k]) == k


def test_what_is_kept_is_bounded():
    made = []

    @by_identity
    def same(value):
        made.append(value)
        return value

    values = [[k] for k in range(MOST + 1)]
    assert all(same(value) is value for value in values)
    assert same(values[0]) is values[0]
    assert len(made) == MOST + 2
