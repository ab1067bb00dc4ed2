"""A bad option is a ValueError that names it, before anything runs."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od

DATA = pa.table({"i": [1, 2, 3], "x": [0.5, 1.5, None]})

BAD = [
    ("workers", -1),
    ("workers", 2.0),
    ("workers", True),
    ("workers", "2"),
    ("workers", 100_000),
    ("scheduler", "fifo"),
    ("scheduler", 3),
    ("partitioning", "none"),
    ("reorder", "mutex"),
    ("buckets", 0),
    ("buckets", 1.5),
    ("buckets", 10**9),
    ("chunk_rows", 0),
    ("chunk_rows", -4),
    ("chunk_rows", "64"),
    ("max_chunks", 0),
    ("max_bytes", 0),
    ("max_bytes", 1e9),
    ("depth", 1),
    ("max_ready", 0),
    ("marker_every", 0),
    ("snapshot_every", 0),
    ("slice_us", 0),
    ("slice_us", -1.0),
    ("slice_us", "fast"),
    ("slice_us", float("nan")),
    ("window_us", float("inf")),
    ("capacity", 0),
    ("chunk_us", 0),
    ("marker_percentiles", (80, 20)),
    ("marker_percentiles", (-1, 50)),
    ("punctuate", "1 s"),
    ("punctuate", 60),
    ("feeder", "process"),
    ("punctuate", od.every("missing", 5)),
    ("wrokers", 2),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda value: str(value)[:30])
def test_bad_options(name, value):
    pulled = []

    def source():
        pulled.append(1)
        yield from DATA.to_batches()

    word = "missing" if getattr(value, "column", None) == "missing" else name
    with pytest.raises(ValueError, match=word):
        od.Pipeline(DATA.schema).run(source(), **{name: value})
    assert not pulled, "the source was read"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("marker_percentiles", 20),
        ("marker_percentiles", "abc"),
        ("marker_percentiles", (20, "x")),
        ("slice_us", True),
        ("seed", "one"),
        ("seed", 1.5),
        ("arrivals", "soon"),
        ("arrivals", [1.5]),
        ("progress", 5),
        ("tags", "yes"),
    ],
    ids=str,
)
def test_options_of_a_wrong_kind(name, value):
    """They too are ValueErrors that name the option."""
    with pytest.raises(ValueError, match=name), od.Pipeline(DATA.schema).stream(DATA, **{name: value}):
        pass


def test_arrivals_of_fewer_tuples_than_come():
    with pytest.raises(ValueError, match="arrivals"):
        od.Pipeline(DATA.schema).run(DATA, workers=0, arrivals=[0])


def test_punctuation_of_a_column_that_holds_no_time():
    with pytest.raises(ValueError, match="'x'"):
        od.Pipeline(DATA.schema).run(DATA, punctuate=od.every("x", 5))


def test_bad_options_of_stream_are_told_at_once():
    with pytest.raises(ValueError, match="chunk_rows"):
        od.Pipeline(DATA.schema).stream(DATA, chunk_rows=0)


def test_none_is_the_default():
    names = [
        "workers",
        "scheduler",
        "partitioning",
        "reorder",
        "buckets",
        "chunk_rows",
        "punctuate",
        "max_bytes",
    ]
    names += [
        "max_chunks",
        "slice_us",
        "marker_percentiles",
        "snapshot_every",
        "progress",
        "depth",
        "capacity",
    ]
    out = od.Pipeline(DATA.schema).run(DATA, **dict.fromkeys(names))
    assert out.table.equals(DATA)
    assert (out.report.scheduler, out.report.partitioning, out.report.reorder) == (
        "ct",
        "hybrid",
        "nonblocking",
    )


@pytest.mark.parametrize("value", [1, 3, 65_535])
def test_buckets_of_a_run_and_of_an_operator(value):
    pipeline = (
        od.Pipeline(DATA.schema).key_by("i").scan(n=od.count()).key_by("i", buckets=2).scan(m=od.count())
    )
    report = pipeline.run(DATA, workers=1, buckets=value).report
    assert [o.buckets for o in report.operators if o.kind == "PS"] == [value, 2]


@pytest.mark.parametrize(
    "options", [{"workers": 0}, {"workers": 2}, {"workers": 2, "processes": 2}], ids=str
)
@pytest.mark.parametrize(
    "names",
    [("ingress",), ("first", "ingress"), ("ingress", "ingress_2"), ("ingress_2", "ingress", "ingress_3")],
)
@pytest.mark.thin(3)
def test_an_operator_may_have_the_name_of_the_split(names, options):
    """No operator's report is lost, and none has another's name."""
    schema = pa.schema([("k", pa.int64())])
    keyed = od.Pipeline(schema).key_by("k").scan(n=od.count(), name=names[0])
    plain = od.Pipeline(schema).filter(od.col("k") > 0, name=names[0])
    for pipeline in (keyed, plain):
        for position, name in enumerate(names[1:]):
            pipeline = pipeline.key_by("k").scan(**{f"m{position}": od.count()}, name=name)
        report = pipeline.run(pa.table({"k": [1, 2, 3, 1]}), **options).report
        assert [o.name for o in report.operators if not o.is_split] == list(names)
        assert all(o.tuples_in == 4 for o in report.operators)
        assert len({o.name for o in report.operators}) == len(report.operators)
