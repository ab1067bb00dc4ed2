"""``ordstream run``: parameters, profiles, engines, JSON, verification, and mistakes as one sentence."""

import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tpcxbb_definition import ANSWERS, Tables

from ordstream.commands import run
from ordstream.commands.cli import main
from ordstream.ground.whole_file import ADVICE
from ordstream.tpcxbb import DataFolder, Sizes, batch, generate_clicks
from ordstream.tpcxbb.batch_sql import STATEMENTS
from ordstream.tpcxbb.parameters import READERS, read_parameters
from ordstream.tpcxbb.queries import QUERIES

PARAMETERS = {  # name -> (profile batch, profile paper)
    "q1": {
        "stores": ([10, 20, 33, 40, 50], None),
        "categories": ([1, 2, 3], None),
        "min_count": (50, 0),
        "limit": (100, 100),
        "window_seconds": (None, 3600),
    },
    "q2": {"anchor": (10_001, None), "timeout_seconds": (3600, 3600), "limit": (30, 30)},
    "q3": {
        "purchased": (10_001, None),
        "categories": ([2, 3], [2, 3]),
        "last_n": (5, 5),
        "within_seconds": (864_000, 864_000),
        "limit": (100, 30),
    },
    "q4": {"timeout_seconds": (3600, 3600)},
    "q15": {"store": (10, 10), "date_from": (37_134, 37_134), "date_to": (37_499, 37_499)},
}
SMALLER = {  # so that few rows have an answer
    "q1": ["min_count=0", "stores=10,3", "limit=20"],
    "q2": ["limit=5"],
    "q3": ["limit=20", "last_n=3"],
    "q4": ["timeout_seconds=100000"],
    "q15": ["store=none", "date_from=2001-01-01", "date_to=36980"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    sizes = Sizes(orders=700, days=120)
    return DataFolder(
        generate_clicks(tmp_path_factory.mktemp("tpcxbb"), sizes=sizes, seed=3, store_sales=True)
    )


def plain(value):
    return json.loads(json.dumps(value))


# --- parameters ---


@pytest.mark.parametrize("name", QUERIES)
def test_profiles_have_the_published_defaults(name):
    for at, profile in enumerate(("batch", "paper")):
        expected = {parameter: values[at] for parameter, values in PARAMETERS[name].items()}
        assert plain(QUERIES[name].profiles[profile]) == expected


def test_lists_dates_and_none_are_read():
    defaults = dict.fromkeys(READERS, 0)
    pairs = [
        "stores=3,1,3",
        "categories=none",
        "date_from=2001-09-02",
        "date_to=37499",
        "store=NONE",
        "min_count=0",
    ]
    assert read_parameters("q", defaults, pairs) == defaults | {
        "stores": (3, 1),
        "categories": None,
        "date_from": 37_134,
        "date_to": 37_499,
        "store": None,
        "min_count": 0,
    }


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("limit", "--param takes name=value, not 'limit'"),
        ("colour=1", "q has no parameter 'colour'; it has stores, "),
        ("limit=0", "limit of q must be a whole number of at least 1, not '0'"),
        ("limit=none", "limit of q must be a whole number of at least 1, not 'none'"),
        ("limit=1e3", "limit of q must be a whole number"),
        ("limit=9223372036854775808", "limit of q must be a whole number"),
        ("last_n=0", "last_n of q must be a whole number from 1 to 1024, not '0'"),
        ("last_n=9223372036854775807", "last_n of q must be a whole number from 1 to 1024"),
        ("stores=1,,2", "stores of q must be whole numbers with commas between them, or none, not '1,,2'"),
        ("stores=", "stores of q must be whole numbers"),
        ("store=1,2", "store of q must be a whole number of at least 0, or none"),
        ("date_to=2001-02-30", "date_to of q must be a date such as 2001-09-02, or a number of days"),
        ("date_from=2001-09-03", r"date_from of q (37135) is after date_to (0)"),
    ],
)
def test_wrong_parameters_are_one_sentence(pair, message):
    with pytest.raises(ValueError) as raised:  # noqa: PT011, the message is compared below
        read_parameters("q", dict.fromkeys(READERS, 0), [pair])
    assert message in str(raised.value)
    with pytest.raises(ValueError, match="--param limit is given twice"):
        read_parameters("q", dict.fromkeys(READERS, 0), ["limit=1", "limit=2"])


# --- runs ---


@pytest.mark.parametrize("profile", ["batch", "paper"])
@pytest.mark.parametrize("name", QUERIES)
def test_every_query_runs_verifies_and_writes_json(folder, tmp_path, capsys, name, profile):
    pytest.importorskip("duckdb")
    file = tmp_path / "answer.json"
    command = [
        "run",
        name,
        "--data",
        str(folder.path),
        "--profile",
        profile,
        "--verify",
        "--json",
        str(file),
    ]
    for pair in SMALLER[name]:
        command += ["--param", pair]
    assert main([*command, "--workers", "2", "--chunk-rows", "auto"]) == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1] == "verified: equal to the batch answer"
    found = json.loads(file.read_text())
    assert (found["query"], found["profile"], found["engine"], found["verified"]) == (
        name,
        profile,
        "node",
        True,
    )
    assert list(found["parameters"]) == list(PARAMETERS[name])
    assert found["tuples"] == folder.rows(QUERIES[name].source) == found["operators"][0]["tuples_in"]
    assert found["tuples_per_second"] == pytest.approx(found["tuples"] / found["seconds"])
    assert set(found["latency"]) == {"processing", "end_to_end"}
    expected = ANSWERS[name](Tables(folder), **found["parameters"])
    assert expected
    assert batch.first_difference(found["answer"], expected) is None


@pytest.fixture(scope="module")
def folder_with_holes(folder, tmp_path_factory):
    """The same facts; some items and pages are missing, others have no category or type."""
    path = tmp_path_factory.mktemp("holes")
    for table in ("web_clickstreams", "store_sales"):
        pq.write_table(folder.table(table), path / f"{table}.parquet")
    for table, key, column in (
        ("item", "i_item_sk", "i_category_id"),
        ("web_page", "wp_web_page_sk", "wp_type"),
    ):
        rows = folder.table(table).to_pylist()
        kept = [row | ({column: None} if row[key] % 5 == 1 else {}) for row in rows if row[key] % 5 != 3]
        pq.write_table(pa.Table.from_pylist(kept, folder.table(table).schema), path / f"{table}.parquet")
    return DataFolder(path)


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("q1", ["stores=none", "categories=none", "min_count=0"]),
        ("q1", ["stores=none", "categories=1,2", "min_count=0"]),
        ("q3", ["purchased=none", "categories=none"]),
        ("q4", []),
        ("q15", ["store=none", "date_from=2001-01-01"]),
    ],
)
def test_what_has_no_category_or_type_counts_as_in_the_batch_answer(
    folder_with_holes, tmp_path, name, pairs
):
    file = tmp_path / "answer.json"
    command = ["run", name, "--data", str(folder_with_holes.path), "--json", str(file)]
    for pair in pairs:
        command += ["--param", pair]
    assert main(command) == 0
    found = json.loads(file.read_text())
    expected = ANSWERS[name](Tables(folder_with_holes), **found["parameters"])
    assert expected
    assert batch.first_difference(found["answer"], expected) is None


@pytest.mark.parametrize("name", QUERIES)
def test_updates_end_in_the_same_answer(folder, tmp_path, name):
    answers = []
    for emit in ("updates", "final"):
        file = tmp_path / f"{emit}.json"
        command = [
            "run",
            name,
            "--data",
            str(folder.path),
            "--profile",
            "paper",
            "--emit",
            emit,
            "--json",
            str(file),
        ]
        command += [part for pair in SMALLER[name] for part in ("--param", pair)]
        assert main([*command, "--workers", "0", "--chunk-rows", "100"]) == 0
        found = json.loads(file.read_text())
        assert found["verified"] is None
        answers.append(found["answer"])
    assert answers[0] == answers[1] != []


@pytest.mark.parametrize("name", STATEMENTS)
def test_sql_runs_every_query(folder, tmp_path, name):
    pytest.importorskip("duckdb")
    file = tmp_path / "answer.json"
    command = [
        "run",
        name,
        "--engine",
        "sql",
        "--data",
        str(folder.path),
        "--param",
        SMALLER[name][0],
        "--json",
        str(file),
    ]
    assert main([*command, "--verify"]) == 0
    found = json.loads(file.read_text())
    assert (found["engine"], found["verified"], found["latency"], found["operators"]) == (
        "sql",
        True,
        None,
        None,
    )
    assert found["tuples"] == folder.rows(QUERIES[name].source)


@pytest.mark.parametrize("name", QUERIES)
def test_two_processes_give_the_same_answer(folder, tmp_path, name):
    pytest.importorskip("duckdb")
    file = tmp_path / "answer.json"
    command = ["run", name, "--data", str(folder.path), "--profile", "paper", "--nodes", "2", "--verify"]
    command += [part for pair in SMALLER[name] for part in ("--param", pair)]
    assert main([*command, "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["verified"] is True
    assert found["answer"]
    assert found["operators"][0]["tuples_in"] == found["tuples"]


def test_a_wrong_answer_is_named_and_exits_with_1(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(batch, "duckdb_answer", lambda *_, **__: [(1, 2, 3)])
    file = tmp_path / "answer.json"
    assert (
        main(["run", "q2", "--data", str(folder.path), "--verify", "--workers", "0", "--json", str(file)])
        == 1
    )
    assert "not equal to the batch answer: row 1: the stream has" in capsys.readouterr().out
    assert json.loads(file.read_text())["verified"] is False


def test_an_error_of_duckdb_is_one_sentence(folder, capsys, monkeypatch):
    duckdb = pytest.importorskip("duckdb")

    def fails(*_, **__):
        raise duckdb.OutOfMemoryException(
            "Out of Memory Error: failed to pin block\n\nPossible solutions: ..."
        )

    monkeypatch.setattr(batch, "duckdb_answer", fails)
    assert main(["run", "q2", "--data", str(folder.path), "--engine", "sql"]) == 2
    assert (
        capsys.readouterr().err
        == "ordstream: DuckDB has no batch answer: Out of Memory Error: failed to pin block\n"
    )


def test_unsorted_rows_run_when_sorting_is_asked_for(folder, tmp_path, capsys):
    pytest.importorskip("duckdb")
    rows = folder.table("web_clickstreams")
    order = list(range(rows.num_rows))[::-1]
    pq.write_table(rows.take(order), tmp_path / "web_clickstreams.parquet")
    command = ["run", "q2", "--data", str(tmp_path), "--verify"]
    assert main(command) == 2
    assert "web_clickstreams.parquet is not sorted: row 2 comes before row 1" in capsys.readouterr().err
    assert main([*command, "--sort"]) == 0


def test_a_json_file_that_cannot_be_written_is_told_before_the_run(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(run._ENGINES, "node", lambda job, verify: pytest.fail("it ran"))
    kept = tmp_path / "kept.json"
    kept.write_text("before")
    reasons = {
        tmp_path: f"--json {tmp_path} is a folder",
        tmp_path / "none" / "a.json": "no folder for --json",
        tmp_path / ("a" * 300): f"--json {tmp_path / ('a' * 300)} can't be written: File name too long",
        kept / "a.json": "no folder for --json",
    }
    for file, reason in reasons.items():
        assert main(["run", "q2", "--data", str(folder.path), "--json", str(file)]) == 2
        assert capsys.readouterr().err.startswith(f"ordstream: {reason}")
    assert kept.read_text() == "before"
    with pytest.raises(pytest.fail.Exception, match="it ran"):
        main(["run", "q2", "--data", str(folder.path), "--json", str(kept)])
    assert [file.name for file in tmp_path.iterdir()] == ["kept.json"]
    assert kept.read_text() == "before"


@pytest.mark.skipif(sys.platform != "linux", reason="the file that is always full is Linux's")
def test_a_disk_that_is_full_after_the_run_is_told_with_the_file(folder, capsys):
    assert main(["run", "q4", "--data", str(folder.path), "--json", "/dev/full"]) == 2
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == f"ordstream: --json /dev/full can't be written: No space left on device; {ADVICE}"
    )


def test_long_answers_are_cut_on_the_screen_only(folder, tmp_path, capsys):
    file = tmp_path / "answer.json"
    command = [
        "run",
        "q2",
        "--engine",
        "sql",
        "--data",
        str(folder.path),
        "--param",
        "anchor=none",
        "--param",
        "limit=150",
    ]
    assert main([*command, "--json", str(file)]) == 0
    assert "... and 50 more rows" in capsys.readouterr().out
    assert len(json.loads(file.read_text())["answer"]) == 150


# --- mistakes ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "q7", "--data", "."], "q7 is not a query; there is q"),
        (["run", "q2", "--data", "no such folder"], "no data folder"),
        (["run", "q2", "--data", __file__], "is a file: name the folder that it lies in"),
        (["run", "q2", "--data", ""], "argument --data: it is empty: name a folder"),
        (["run", "q2", "--data", "."], "no table web_clickstreams"),
        (["run", "q2", "--data", ".", "--param", "limit"], "--param takes name=value"),
        (
            ["run", "q2", "--data", ".", "--param", "colour=1"],
            "q2 has no parameter 'colour'; it has anchor, timeout_seconds, limit",
        ),
        (["run", "q2", "--data", ".", "--engine", "flink"], "argument --engine: invalid choice: 'flink'"),
        (["run", "q2", "--data", ".", "--profile", "fast"], "argument --profile: invalid choice: 'fast'"),
        (
            ["run", "q2", "--data", ".", "--scheduler", "fifo"],
            "argument --scheduler: invalid choice: 'fifo'",
        ),
        (
            ["run", "q2", "--data", ".", "--workers", "two"],
            "argument --workers: 'two' is not a whole number or auto",
        ),
        (
            ["run", "q2", "--data", ".", "--nodes", "0"],
            "argument --nodes: '0' is not a whole number of at least 1",
        ),
        (
            ["run", "q2", "--data", ".", "--engine", "sql", "--nodes", "2"],
            "--nodes is for the engines node and spark",
        ),
        (
            ["run", "q2", "--data", ".", "--nodes", "3000"],
            "--nodes 3000: the engine node takes at most 1024 processes",
        ),
        (
            ["run", "q2", "--data", ".", "--engine", "sql", "--chunk-rows", "2"],
            "--chunk-rows is for the engines node and spark, and for sql with --verify",
        ),
        (["run", "q2", "--data", ".", "--engine", "sql", "--sort"], "--sort is for the engines node and"),
        (["run", "q2", "--data", ".", "--engine", "sql", "--emit", "updates"], "--emit is for the engines"),
        (["demo", "--stream", "--workers", "2"], "--workers is not with --stream"),
        (["demo", "--stream", "--buckets", "0"], "--buckets is not with --stream"),
        (["demo", "--stream", "--json", "no/a.json"], "no folder for --json"),
        (["demo", "--json", "no/such/folder.json"], "no folder for --json"),
        (["demo", "--workers", "-7"], "workers must be a whole number from 0 to 1024"),
        (["generate", "--rows", "9", "--out", "out", "--seed", "-1"], "--seed must not be negative, not -1"),
        (["bench", "dkg-fig2", "--streams", "0"], "--streams must be 1 or more, not 0"),
        (["bench", "dkg-fig2", "--processes", "0"], "--processes must be 1 or more, not 0"),
        (["bench", "dkg-fig2", "--seed", "-1"], "--seed must be 0 or more, not -1"),
        (["generate", "--rows", "9", "--out", "d\udcff"], "not UTF-8, which pyarrow can't open: rename it"),
        (["run", "q2", "--data", "d\udcff"], "d\\udcff' has bytes in its name that are not UTF-8"),
        (["generate", "--out", ""], "argument --out: it is empty: name a folder"),
        (["generate", "--out", __file__], "is there, and is no folder"),
        (["bench", "fig8", "--out", __file__], "is there, and is no folder"),
        (["demo", "--rows", "0"], "argument --rows: '0' is not a whole number of at least 1"),
        (["demo", "--stream", "--rows", "0"], "argument --rows: '0' is not a whole number of at least 1"),
        (["run", "q2", "--data", ".", "--json", "no/such/folder.json"], "no folder for --json"),
        (["run", "q2"], "the following arguments are required: --data"),
        (["fly"], "invalid choice: 'fly'"),
        ([], "the following arguments are required"),
    ],
)
def test_mistakes_are_one_sentence(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("ordstream: ")
    assert message in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_options_of_the_node_that_verifies_an_answer_of_sql_are_taken(folder, capsys):
    command = ["run", "q4", "--data", str(folder.path), "--engine", "sql", "--workers", "1", "--verify"]
    assert main(command) == 0


def test_an_option_out_of_range_is_one_sentence(folder, capsys):
    assert main(["run", "q2", "--data", str(folder.path), "--workers", "-3"]) == 2
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == 'ordstream: workers must be a whole number from 0 to 1024 or "auto", got -3'
    )


def test_help_is_no_mistake(capsys):
    assert main(["run", "--help"]) == 0
    assert "--partitioning" in capsys.readouterr().out
