"""The order that rows are checked against: directions, NULL and NaN."""

import itertools

import pyarrow as pa
import pytest

from ordstream.ground.ordercheck import OrderCheck, SortKey

NAN = float("nan")


def violation(keys, *columns, cuts=()):
    """Row of the stream that is out of order, the rows cut into batches."""
    table = pa.table({f"c{k}": column for k, column in enumerate(columns)})
    check = OrderCheck(keys)
    for low, high in itertools.pairwise([0, *cuts, len(table)]):
        for batch in table.slice(low, high - low).combine_chunks().to_batches():
            found = check.first_violation(batch)
            if found is not None:
                return found
    return None


IN_ORDER = {  # descending, nulls last -> values in that order
    (False, False): [None, -1.0, -0.0, 0.0, 2.0, NAN, NAN],
    (False, True): [-1.0, 0.0, 2.0, NAN, None, None],
    (True, False): [None, None, NAN, 2.0, 0.0, -0.0, -1.0],
    (True, True): [NAN, 2.0, -1.0, None],
}


@pytest.mark.parametrize(("descending", "nulls_last"), IN_ORDER)
def test_each_pair_of_values_is_in_order_one_way_only(descending, nulls_last):
    values = IN_ORDER[descending, nulls_last]
    key = [SortKey("c0", descending, nulls_last)]
    ranks = ["null" if value is None else "NaN" if value != value else value for value in values]
    assert violation(key, pa.array(values)) is None
    assert violation(key, pa.array(values), cuts=[1, 3]) is None
    for i, j in itertools.combinations(range(len(values)), 2):
        same = ranks[i] == ranks[j]
        assert violation(key, pa.array([values[j], values[i]], pa.float64())) == (None if same else 1)


@pytest.mark.parametrize("values", [[3, 2, 2, 1], ["b", "ab", "a", ""], [True, True, False, False]])
def test_columns_of_other_types_descend(values):
    assert violation([SortKey("c0", descending=True)], values) is None
    assert violation(["c0"], values) is not None
    assert violation([SortKey("c0", descending=True)], values[::-1]) is not None


def test_directions_are_mixed():
    keys = [SortKey("c0", descending=True, nulls_last=True), "c1"]
    assert violation(keys, [2, 2, 1, None], [1, 2, 0, 0]) is None
    assert violation(keys, [2, 2, 1, 1], [1, 2, 1, 0]) == 3
    assert violation(keys, [2, 2, 1, 1], [1, 2, 1, 0], cuts=[3]) == 3
