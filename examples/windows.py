"""Everyday jobs with time: windows, sessions, and rows that come late.

Each function gives a pipeline for clicks (`ts`, `user`, `page`, `ms`); run one with
`counts_per_minute().run(clicks)`. A window that is closed is forgotten: memory follows what is open.
"""

import pyarrow as pa

import ordstream as od

CLICKS = pa.schema({"ts": pa.timestamp("s"), "user": pa.int64(), "page": pa.int32(), "ms": pa.float64()})


def counts_per_minute():
    """Clicks per page and minute, as soon as the minute is over."""
    minutes = od.Pipeline(CLICKS).key_by("page").window(od.tumbling("1m"), time="ts")
    return minutes.aggregate(clicks=od.count(), slowest=od.max("ms"))


def sliding_mean():
    """Each click with the mean and spread of its page's last five minutes."""
    recent = od.Pipeline(CLICKS).key_by("page").window(od.rolling("5m"), time="ts")
    return recent.aggregate(mean=od.mean("ms"), spread=od.std("ms"))


def top_three_per_minute():
    """The three pages with the most clicks of each minute."""
    counts = counts_per_minute()
    return counts.top_k(3, by="clicks", key="page", window="start", rank="rank")


def sessions():
    """A user's visits: clicks less than half an hour apart, with what was seen."""
    visits = od.Pipeline(CLICKS).key_by("user").window(od.session("30m"), time="ts")
    return visits.aggregate(clicks=od.count(), first=od.first("page"), last=od.last("page"), ms=od.sum("ms"))


def late_rows():
    """Counts per minute of clicks that come up to ten seconds late; later ones are dropped and counted."""
    in_order = od.Pipeline(CLICKS).reorder("ts", slack="10s", late="drop", name="in order")
    return in_order.window(od.tumbling("1m"), time="ts").aggregate(clicks=od.count())
