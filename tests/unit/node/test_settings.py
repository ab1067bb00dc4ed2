"""Options of a run: defaults, what is accepted, what is refused and how."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.node.settings import (
    PARTITIONINGS,
    REORDERS,
    SCHEDULERS,
    Settings,
    make_settings,
    refuse_state,
)


def test_defaults():
    settings = make_settings({})
    assert settings == Settings()
    assert (settings.scheduler, settings.partitioning, settings.reorder) == ("ct", "hybrid", "nonblocking")
    assert settings.workers == "auto"
    assert settings.chunk_rows is None
    assert settings.tags is False


def test_none_means_the_default():
    assert make_settings({field.name: None for field in fields(Settings)}) == Settings()


@pytest.mark.parametrize(
    ("name", "values"), [("scheduler", SCHEDULERS), ("partitioning", PARTITIONINGS), ("reorder", REORDERS)]
)
def test_choices(name, values):
    for value in values:
        assert getattr(make_settings({name: value}), name) == value
    with pytest.raises(od.PlanError, match=f"{name} must be one of {', '.join(values)}; got 'x'"):
        make_settings({name: "x"})


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("workers", 0, 1024),
        ("max_workers", 1, 1024),
        ("buckets", 1, 65_535),
        ("chunk_rows", 1, 1 << 20),
        ("depth", 2, 1 << 20),
        ("max_ready", 1, 4000),
        ("max_chunks", 1, 1 << 40),
        ("max_bytes", 1, 1 << 60),
        ("marker_every", 1, 1 << 60),
        ("snapshot_every", 1, 1 << 60),
    ],
)
def test_whole_numbers(name, low, high):
    for value in (low, high, np.int64(low)):
        assert getattr(make_settings({name: value}), name) == value
    for value in (low - 1, high + 1, 2.5, float(low), str(low), True, [low]):
        with pytest.raises(
            od.PlanError, match=f"{name} must be a whole number from {low} to {high}( or .auto.)?, got "
        ):
            make_settings({name: value})


@pytest.mark.parametrize("name", ["slice_us", "window_us", "capacity", "chunk_us"])
def test_positive_numbers(name):
    for value in (0.5, 7):
        assert getattr(make_settings({name: value}), name) == value
    for value in (0, -1, float("nan"), float("inf"), 10**400, "1"):
        with pytest.raises(od.PlanError, match=f"{name} must be a positive number, got "):
            make_settings({name: value})


@pytest.mark.filterwarnings("error")
def test_numbers_and_flags_of_numpy():
    """np.float32(5) was compared with a number that it rounds to infinity, with a warning."""
    for name in ("slice_us", "window_us", "capacity", "chunk_us", "partial_after"):
        for value in (np.float32(5), np.float64(5), np.int8(5)):
            assert getattr(make_settings({name: value}), name) == 5
        with pytest.raises(od.PlanError, match=f"{name} must be "):
            make_settings({name: np.float32("inf")})
    for value in (np.True_, np.False_):
        assert make_settings({"tags": value}).tags is bool(value)
    with pytest.raises(od.PlanError, match="tags must be True or False, got 1"):
        make_settings({"tags": 1})


def test_unknown_option_lists_the_known_ones():
    with pytest.raises(od.PlanError, match=r"unknown option 'worker'\. Did .* Options are .*\bworkers\b"):
        make_settings({"worker": 2})


@pytest.mark.parametrize(
    ("given", "meant"),
    [("process", "processes"), ("mergeby", "merge_by"), ("output", "outputs"), ("balanc", "balance"),
     ("chunk_size", "chunk_rows"), ("batch_size", "chunk_rows"), ("n_jobs", "workers"),
     ("threads", "workers")],
)  # fmt: skip
def test_an_option_of_pipelines_is_meant(given, meant):
    """Those of several processes, sources and outputs are listed; what only fragments give is not."""
    pipeline = od.Pipeline({"x": int})
    for start in (pipeline.run, pipeline.stream):
        with pytest.raises(od.PlanError, match=rf"Did you mean '{meant}'\? Options are ") as caught:
            start([], **{given: 2})
        assert "given_marks" not in str(caught.value)


def test_marker_percentiles():
    assert make_settings({"marker_percentiles": (20, 80)}).marker_percentiles == (20, 80)
    for value in ((80, 20), (5, 5), (-1, 50), (50, 101)):
        with pytest.raises(od.PlanError, match="marker_percentiles must be"):
            make_settings({"marker_percentiles": value})


def test_punctuate():
    every = od.every("ts", 60)
    assert make_settings({"punctuate": every}).punctuate is every
    with pytest.raises(od.PlanError, match=r"punctuate must be od\.every"):
        make_settings({"punctuate": 60})


def test_arrivals_become_int64():
    arrivals = make_settings({"arrivals": [0, 10, 20]}).arrivals
    assert arrivals.dtype == np.int64
    assert arrivals.tolist() == [0, 10, 20]


def test_description_has_plain_values():
    described = make_settings({"scheduler": "lp", "progress": print, "arrivals": [1]}).described(3)
    assert described["workers"] == 3
    assert described["scheduler"] == "lp"
    assert not {"progress", "arrivals", "punctuate"} & set(described)


def test_processes_are_an_option_of_pipelines_only():
    with pytest.raises(od.PlanError, match=r"processes is an option of Pipeline\.run"):
        make_settings({"processes": 2})
    assert make_settings({"processes": None}) == make_settings({})


def test_the_closest_option_is_named_in_front_of_the_others():
    text = r"^unknown option 'worker'\. Did you mean 'workers'\? Options are "
    with pytest.raises(od.PlanError, match=text):
        make_settings({"worker": 2})
    with pytest.raises(od.PlanError, match=r"^unknown option 'x_y_z'; options are "):
        make_settings({"x_y_z": 2})
    assert make_settings({"chunk_rows": "auto"}).chunk_rows is None


def test_a_type_is_no_schema():
    for given in (pa.int64(), pa.field("a", pa.int64())):
        with pytest.raises(od.SchemaError, match=r"expected a pyarrow\.Schema or a mapping of name to type"):
            od.Pipeline(given)
    assert od.Pipeline(pa.struct({"a": pa.int64()})).schema == pa.schema({"a": pa.int64()})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"punctuate": od.count()}, r"punctuate must be od\.every"),
        ({"checkpoint": 5}, "checkpoint must be a folder or an od.Checkpoint, got 5"),
        ({"checkpoint": ["a"]}, "checkpoint must be a folder"),
    ],
)
def test_what_is_no_clock_and_no_folder_is_refused(options, text):
    with pytest.raises(od.PlanError, match=text):
        make_settings(options)


def test_batches_that_are_not_full_come_no_sooner_than_asked_for():
    table = pa.table({"n": list(range(400))})

    pipeline = od.Pipeline(table.schema).map(tuple, schema=table.schema)
    for workers, after in ((0, 0.0), (0, 1e-9), (0, 1e9), (1, 1e9)):
        with pipeline.stream(table, workers=workers, chunk_rows=4, partial_after=after) as stream:
            batches = list(stream)
        assert pa.Table.from_batches(batches) == table
        assert (len(batches) == 1) == (after == 1e9)
    for wrong in (-1, float("inf"), "x", True):
        with pytest.raises(od.PlanError, match="partial_after must be seconds from 0"):
            make_settings({"partial_after": wrong})
    with pytest.raises(od.PlanError, match="partial is an option of stream"):
        pipeline.run(table, partial=True)


@pytest.mark.parametrize("arrivals", [[[1], [1, 2]], ["a"], 5])
def test_arrivals_are_numbers(arrivals):
    with pytest.raises(od.PlanError, match="arrivals must be ascending whole numbers"):
        make_settings({"arrivals": arrivals})


@pytest.mark.parametrize("progress", [lambda: None, lambda rows: None, len])
def test_progress_takes_two_numbers(progress):
    """It was a TypeError in the middle of the run."""
    with pytest.raises(od.PlanError, match=r"progress: it is called as progress\(issued, emitted\)"):
        make_settings({"progress": progress})


def test_a_state_that_can_not_stay_is_sent_where_it_can():
    """It said "run in one node", and one node of Spark refuses it too."""
    with pytest.raises(od.PlanError, match=r"^checkpoint can't be .* with Spark.* od\.spark\.stream\("):
        refuse_state(make_settings({"checkpoint": "state"}), "Spark")
    refuse_state(make_settings({"end": "finish"}), "Spark")
