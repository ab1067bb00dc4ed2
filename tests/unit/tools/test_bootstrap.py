"""tools/bootstrap.sh on a machine where something is missing: it installs it, or stops with one sentence."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("sh", "dirname", "sed", "head", "cat", "chmod", "uname", "readlink", "basename", "ls")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the machine is made of links")


@pytest.fixture
def machine(tmp_path):
    """A checkout of the script on a machine with a Python (headers and venv included), without a
    compiler or package manager.
    """
    if not Path(sys.base_prefix, "bin", "python3").exists():
        pytest.skip("no python3 beside this one")
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "bootstrap.sh", tmp_path / "tools")
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    (tmp_path / "bin" / "python3").symlink_to(Path(sys.base_prefix, "bin", "python3"))
    # What is tried is a virtual environment that is there already: making one takes seconds.
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    program(tmp_path, "id", "echo 1000")
    return tmp_path


def program(machine, name, text):
    file = machine / "bin" / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def bootstrap(machine, *door):
    """(exit status, lines on stderr)"""
    environment = {"PATH": str(machine / "bin"), "CXX": "the-compiler", "HOME": str(machine), "LANG": "C"}
    ran = subprocess.run(
        [str(machine / "bin" / "sh"), str(machine / "tools" / "bootstrap.sh"), *door],
        env=environment, cwd=machine, capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ran.stdout == ""
    return ran.returncode, ran.stderr.splitlines()


def test_all_is_there(machine):
    program(machine, "the-compiler", "exit 0")
    assert bootstrap(machine) == (0, [])


def test_without_a_package_manager(machine):
    sentence = (
        "ordstream needs a C++17 compiler: install it with your system's package manager and run the "
        "command again."
    )
    assert bootstrap(machine) == (1, [sentence])


def test_where_it_may_not_install(machine):
    program(machine, "apt-get", "echo never called; exit 3")
    sentence = (
        "ordstream needs a C++17 compiler: type `sudo apt-get install -y --no-install-recommends g++` and "
        "run the command again."
    )
    assert bootstrap(machine) == (1, [sentence])
    program(machine, "sudo", "exit 1")  # it asks for a password
    assert bootstrap(machine) == (1, [sentence])


@pytest.mark.parametrize("how", ["root", "sudo"])
def test_what_is_missing_is_installed(machine, how):
    if how == "root":
        program(machine, "id", "echo 0")
    else:
        program(machine, "sudo", 'test "$1" = -n && shift && exec "$@"')
        (machine / "bin" / "true").symlink_to(shutil.which("true"))
    program(machine, "apt-cache", "exit 0")
    place = machine / "bin" / "the-compiler"
    installs = f'if [ "$1" = install ]; then echo "#!/bin/sh" > {place}; chmod 755 {place}; fi'
    program(machine, "apt-get", f'echo "$*" >> {machine}/asked; {installs}')
    status, told = bootstrap(machine)
    assert (status, told) == (
        0,
        ["installing a C++17 compiler: apt-get install -y --no-install-recommends g++"],
    )
    assert (machine / "asked").read_text().splitlines() == [
        "update -qq",
        "install -y --no-install-recommends g++",
    ]
    assert bootstrap(machine) == (0, [])


def test_an_installation_that_fails(machine):
    program(machine, "id", "echo 0")
    program(machine, "dnf", "echo no such package >&2; exit 1")
    status, told = bootstrap(machine)
    assert status == 1
    assert told[-1] == (
        "ordstream needs a C++17 compiler, and `dnf install -y gcc-c++` did not bring it: install it by "
        "hand and run the command again."
    )


def test_a_python_without_headers_is_not_enough(machine):
    program(machine, "the-compiler", "exit 0")
    real = machine / "bin" / "python3"
    target = real.readlink()
    real.unlink()
    # This python says no to the one question about Python.h, and answers all others.
    program(machine, "python3", f'case "$*" in *Python.h*) exit 1 ;; esac; exec {target} "$@"')
    status, told = bootstrap(machine)
    assert status == 1
    assert told == [
        "ordstream needs the headers of Python: install it with your system's package manager and run the "
        "command again."
    ]


def test_the_model_checker_is_installed_where_that_may_be_done(machine):
    place = machine / "bin" / "spin"
    program(machine, "id", "echo 0")
    asked = '"$*" = "install -y --no-install-recommends spin"'
    program(machine, "apt-get", f'if [ {asked} ]; then echo "#!/bin/sh" > {place}; chmod 755 {place}; fi')
    told = ["installing the model checker SPIN: apt-get install -y --no-install-recommends spin"]
    assert bootstrap(machine, "spin") == (0, told)
    assert bootstrap(machine, "spin") == (0, [])


def test_without_the_model_checker_the_suite_goes_on(machine):
    told = [
        "ordstream needs the model checker SPIN: install it with your system's package manager and run the "
        "command again."
    ]
    skipped = ["without it the tests in tests/models are skipped"]
    assert bootstrap(machine, "spin") == (0, told + skipped)
    program(machine, "dnf", "exit 3")
    assert bootstrap(machine, "spin") == (0, told + skipped)
    program(machine, "apt-get", "exit 3")  # not root, no sudo
    command = "sudo apt-get install -y --no-install-recommends spin"
    told = [f"ordstream needs the model checker SPIN: type `{command}` and run the command again."]
    assert bootstrap(machine, "spin") == (0, told + skipped)


def test_the_servers_are_installed_where_that_may_be_done(machine):
    for name in ("initdb", "postgres"):  # at a place of its own, in case this machine has none
        program(machine, name, "exit 0")
    place = machine / "bin" / "redis-server"
    program(machine, "id", "echo 0")
    asked = '"$*" = "install -y --no-install-recommends redis-server"'
    program(machine, "apt-get", f'if [ {asked} ]; then echo "#!/bin/sh" > {place}; chmod 755 {place}; fi')
    told = ["installing a Redis server: apt-get install -y --no-install-recommends redis-server"]
    assert bootstrap(machine, "servers") == (0, told)
    assert bootstrap(machine, "servers") == (0, [])


def test_without_the_servers_the_suite_goes_on(machine):
    for name in ("initdb", "postgres"):
        program(machine, name, "exit 0")
    told = "ordstream needs a Redis server: install it with your system's package manager and run the "
    told += "command again."
    assert bootstrap(machine, "servers") == (0, [told, "without them the tests that start one are skipped"])
