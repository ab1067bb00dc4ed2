"""Structs, maps and lists of anything between processes, and in states that others take up."""

import pyarrow as pa
import pytest
from packed_columns import PACKED, SCHEMA, shown, table

import ordstream as od
from ordstream.reference.run_serial import run_serial

PIPELINES = {
    "first and last": lambda p: p.key_by("k").scan(
        **{f"{fold.__name__} {name}": fold(name) for name in PACKED for fold in (od.first, od.last)}
    ),
    "two keys": lambda p: (
        p.key_by("k").lag({"before": "s", "then": "m"}).key_by("n").scan(at=od.arg_max("deep", "n"))
    ),
    "filled": lambda p: p.key_by("k").forward_fill(*PACKED),
    "exploded": lambda p: p.flat_map(od.explode("words")).key_by("words").count("seen"),
    "lists": lambda p: (
        p.with_columns(
            part=od.col("s").struct.field("a.b").str.split("'"),
            b=od.col("items").list.get(-1).struct.field("b"),
            inner=od.col("deep").list.first(),
        )
        .key_by("k")
        .lag({"before": "part", "then": "inner"})
        .key_by("b")
        .scan(seen=od.count(where=od.col("before").list.contains("ß\0")), latest=od.last("part"))
    ),
    "words": lambda p: (
        p.select(word=od.col("words").list.join(" ").str.split(" "))
        .flat_map(od.explode("word"))
        .key_by("word")
        .count()
    ),
    "latest": lambda p: p.deduplicate("k", keep="last"),
}
GOES_ON = [name for name in PIPELINES if name != "latest"]  # that speaks at the end only


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.thin(3)
def test_processes_give_what_a_sequential_run_gives(name):
    for count in (1, 300):
        rows, pipeline = table(range(count)), PIPELINES[name](od.Pipeline(SCHEMA))
        expected = shown(run_serial(pipeline, rows).table)
        assert shown(pipeline.run(rows, processes=2).table) == expected
    with pipeline.stream(rows.to_batches(max_chunksize=37), processes=2) as stream:
        assert shown(pa.Table.from_batches(list(stream), schema=pipeline.schema)) == expected


@pytest.mark.parametrize(("before", "after"), [(None, 2), (2, None), (3, 2)])
@pytest.mark.parametrize("name", GOES_ON)
@pytest.mark.thin(6)
def test_a_stored_state_is_taken_up_by_another_number_of_processes(tmp_path, name, before, after):
    rows, pipeline = table(range(300)), PIPELINES[name](od.Pipeline(SCHEMA))

    def run(part, nodes, **options):
        return pipeline.run(part, **options, **({} if nodes is None else {"processes": nodes})).table

    first = run(rows.slice(0, 130), before, end="suspend", checkpoint=tmp_path)
    second = run(rows.slice(130), after, restore=tmp_path)
    assert first.num_rows > 0
    assert shown(first) + shown(second) == shown(run_serial(pipeline, rows).table)
