"""How many CPUs there are: affinity, and a quota that is looked at now and then."""

from __future__ import annotations

import os

import pytest

from ordstream.ground import cpus


@pytest.fixture
def files(monkeypatch):
    """Texts of files by path, in place of the system's; and a clock."""
    found, now = {}, [1000.0]

    def read(path):
        if path not in found:
            raise FileNotFoundError(path)
        return found[path]

    monkeypatch.setattr(cpus, "_read", read)
    monkeypatch.setattr(cpus, "_seen", None)
    monkeypatch.setattr(cpus.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return found, now


def test_a_changed_quota_is_seen_within_a_second(files):
    found, now = files
    found["/sys/fs/cgroup/cpu.max"] = b"250000 100000\n"
    assert cpus.allowed_cpus() == 3
    found["/sys/fs/cgroup/cpu.max"] = b"100000 100000\n"
    assert cpus.allowed_cpus() == 3
    now[0] += cpus.QUOTA_S
    assert cpus.allowed_cpus() == 1


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"cpu.max": b"max 100000\n"}, 8),
        ({"cpu.max": b"50000 100000\n"}, 1),
        ({"cpu.max": b"nonsense"}, 8),
        ({"cpu/cpu.cfs_quota_us": b"-1\n", "cpu/cpu.cfs_period_us": b"100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": b"200000\n", "cpu/cpu.cfs_period_us": b"100000\n"}, 2),
        ({}, 8),
    ],
)
def test_quotas(files, texts, expected):
    files[0].update({f"/sys/fs/cgroup/{name}": text for name, text in texts.items()})
    assert cpus.allowed_cpus() == expected


def test_the_quota_of_this_machine_is_read():
    assert 1 <= cpus.allowed_cpus() <= (os.cpu_count() or 1)
