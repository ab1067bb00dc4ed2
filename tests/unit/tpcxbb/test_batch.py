"""The batch answers: against the queries' definitions, the figures known for the real rows, and
hand-made cases.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tpcxbb_definition import ANSWERS, Tables

from ordstream.tpcxbb import DataFolder, Sizes, batch, generate_clicks
from ordstream.tpcxbb.schema import WEB_CLICKSTREAMS

pytest.importorskip("duckdb")

CASES = [
    ("q1", {}),
    ("q1", {"stores": [10, 3], "categories": [1, 2, 3], "min_count": 1, "limit": 7}),
    ("q1", {"window_seconds": 86_400, "limit": 3}),
    ("q1", {"stores": []}),
    ("q2", {}),
    ("q2", {"anchor": 10_001}),
    ("q2", {"timeout_seconds": 600, "limit": 5}),
    ("q3", {}),
    ("q3", {"purchased": 10_001, "categories": [2, 3], "limit": 100}),
    ("q3", {"last_n": 2, "within_seconds": 7_200, "limit": 1}),
    ("q4", {}),
    ("q4", {"timeout_seconds": 100_000}),
    ("q15", {}),
    ("q15", {"store": 10, "date_from": 37_134, "date_to": 37_499}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    sizes = Sizes(orders=700, days=400)
    return DataFolder(
        generate_clicks(tmp_path_factory.mktemp("tpcxbb"), sizes=sizes, seed=3, store_sales=True)
    )


@pytest.fixture(scope="module")
def tables(folder):
    return Tables(folder)


@pytest.mark.parametrize(("query", "parameters"), CASES)
def test_duckdb_answers_equal_the_definition(folder, tables, query, parameters):
    expected = ANSWERS[query](tables, **parameters)
    assert batch.first_difference(batch.duckdb_answer(folder, query, **parameters), expected) is None
    assert expected or parameters == {"stores": []}


REAL = [  # what the specification says of the real rows: how each answer begins
    (
        "q1",
        {},
        [
            (10000, 10002, 15),
            (10002, 10003, 14),
            (10000, 10003, 11),
            (10000, 10001, 9),
            (10001, 10003, 9),
            (3447, 10003, 7),
        ],
    ),
    ("q1", {"stores": [10, 20, 33, 40, 50], "categories": [1, 2, 3], "min_count": 50}, []),
    ("q2", {}, [(10002, 10003, 13), (10001, 10003, 12), (10000, 10001, 9), (10001, 10002, 8)]),
    (
        "q2",
        {"anchor": 10_001},
        [
            (item, 10_001, n)
            for item, n in zip(
                [10003, 10000, 10002, 13813, 339, 2670, 11010, 11482, 13036, 15534, 1352],
                [12, 9, 8, 7, 5, 5, 5, 5, 5, 5, 4],
                strict=True,
            )
        ],
    ),
    (
        "q3",
        {"purchased": 10_001, "categories": [2, 3], "limit": 100},
        [
            (10_001, item, n)
            for item, n in [(10001, 7), (2670, 6), (3142, 4), (5237, 4), (5709, 4), (8040, 4), (2601, 3)]
        ],
    ),
    ("q4", {}, [(10_061, 4_451)]),
]
SLOPES = {
    2: -1545.7419815,
    3: -562.5277632,
    5: -67.2304975,
    7: -114.1105625,
    8: -320.4086004,
    9: -198.8093256,
}


@pytest.mark.parametrize(("query", "parameters", "begin"), REAL)
def test_answers_on_real_rows(shared_data, query, parameters, begin):
    answer = batch.duckdb_answer(DataFolder(shared_data), query, **parameters)
    assert answer[: len(begin)] == begin
    assert bool(answer) == bool(begin)


def test_regressions_on_real_rows(shared_data):
    answer = batch.duckdb_answer(DataFolder(shared_data), "q15", store=10, date_from=38_697, date_to=38_715)
    assert [row[0] for row in answer] == list(SLOPES)
    assert [row[1] for row in answer] == pytest.approx(list(SLOPES.values()), abs=1e-6)


def clicks(path, *rows):
    """rows: (second, sale, item, page, user)."""
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array([36_890] * len(rows)), *(pa.array(column, pa.int64()) for column in columns)]
    pq.write_table(pa.table(arrays, schema=WEB_CLICKSTREAMS), path / "web_clickstreams.parquet")
    pq.write_table(
        pa.table({"wp_web_page_sk": [0, 1, 2], "wp_type": ["other", "dynamic", "order"]}),
        path / "web_page.parquet",
    )
    items = {"i_item_sk": range(42), "i_category_id": [1] * 42, "i_class_id": [1] * 42}
    pq.write_table(pa.table(items), path / "item.parquet")
    return DataFolder(path)


def test_q3_looks_at_the_last_clicks_of_any_kind(tmp_path):
    first = [
        (ts, 0 if item == 2 else None, item, 0, 1) for ts, item in [(100, 1), (101, 2), (102, 3), (103, 4)]
    ]
    looks = [(40, 39), (41, 40), (104, 41)]
    third = [(ts, None, item, 0, 3) for ts, item in looks] + [(105, 5, 2, 0, 3), (105, 6, 2, 0, 3)]
    data = clicks(tmp_path, *first, *third)
    assert batch.duckdb_answer(data, "q3", purchased=2) == [
        (2, 39, 2),
        (2, 40, 2),
        (2, 41, 2),
        (2, 1, 1),
        (2, 2, 1),
    ]
    assert batch.duckdb_answer(data, "q3", purchased=2, within_seconds=10) == [
        (2, 41, 2),
        (2, 1, 1),
        (2, 2, 1),
    ]


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ([(10, 1), (10, 2)], []),  # a tie: dynamic comes before order
        ([(10, 2), (11, 1), (12, 0)], [(3, 1)]),
        ([(10, 1), (11, 2), (12, 1)], [(3, 1)]),
        ([(10, 0), (11, 0)], []),
        ([(10, 1), (3_610, 2), (7_211, 1)], [(1, 1)]),  # a gap of 3600 stays, 3601 does not
        ([(10, 1), (11, 7)], [(1, 1)]),  # a page of no known type does not count
    ],
)
def test_q4_on_one_user(tmp_path, pages, expected):
    data = clicks(tmp_path, *((ts, None, 5, page, 1) for ts, page in pages))
    assert batch.duckdb_answer(data, "q4") == expected


def test_first_difference_is_named():
    assert batch.first_difference([(1, 2, 3)], [(1, 2, 3)]) is None
    assert batch.first_difference([[1, -4.0, 1e5]], [(1, -4.0000001, 1e5 + 0.01)]) is None
    message = "row 1: the stream has (1, 2, 3), the batch answer (1, 2, 4)"
    assert batch.first_difference([(1, 2, 3)], [(1, 2, 4)]) == message
    assert batch.first_difference([(1, -4.0, 1e5)], [(1, -4.00001, 1e5)]).startswith("row 1: ")
    assert batch.first_difference([(1, None, 1e5)], [(1, -4.0, 1e5)]).startswith("row 1: ")
    assert batch.first_difference([], [(1, 2, 4)]) == "the stream has 0 rows, the batch answer 1"


def test_wrong_queries_and_parameters_are_named():
    with pytest.raises(ValueError, match="no batch answer for q7: there is one for q1, q2, q3, q4, q15"):
        batch.statement("q7")
    with pytest.raises(ValueError, match=r"q4: .*anchor"):
        batch.statement("q4", anchor=3)
