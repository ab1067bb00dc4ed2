"""PostgreSQL and Redis for tests: a server of their own, in a folder, on a unix socket, ended by its id."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


def postgres_program(name: str) -> str | None:
    """Path of `initdb`, `postgres` ...; Debian keeps them off the path."""
    places = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: folder.parent.name, reverse=True
    )
    return shutil.which(name) or next(
        (str(place / name) for place in places if (place / name).is_file()), None
    )


def _as_postgres() -> dict[str, Any]:
    """Arguments of subprocess with which a program runs as the user `postgres`: it refuses root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def postgres_missing() -> str:
    """What a test of PostgreSQL lacks here; empty: nothing."""
    if not (postgres_program("initdb") and postgres_program("postgres")):
        return "no PostgreSQL server"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "PostgreSQL refuses root, and there is no user postgres"
    return ""


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """A cluster made in `folder`, and its server; gives the dsn of its one superuser.

    The folder must be one that the user `postgres` can reach, and its path short: the socket lies in it.
    """
    import psycopg

    data = folder / "data"
    data.mkdir()
    who = _as_postgres()
    if who:
        os.chown(data, who["user"], who["group"])
        os.chown(folder, who["user"], who["group"])
    program = postgres_program("initdb")
    made = [program, "-D", data, "-U", "ordstream", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    subprocess.run(made, check=True, capture_output=True, cwd="/", **who)
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": folder,
        "shared_buffers": "16MB",
        "fsync": "off",
    }
    command = [
        postgres_program("postgres"),
        "-D",
        data,
        *(f"--{name}={value}" for name, value in settings.items()),
    ]
    dsn = f"host={folder} user=ordstream dbname=postgres"
    with _running(command, folder / "postgres.log", who) as server:

        def ready() -> bool:
            try:
                psycopg.connect(dsn).close()
            except psycopg.OperationalError:
                return False
            return True

        _wait(server, ready, folder / "postgres.log")
        yield dsn


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A server without files on a unix socket in `folder`; gives its url."""
    import redis

    socket = folder / "redis.sock"
    command = [
        shutil.which("redis-server"),
        "--port",
        "0",
        "--unixsocket",
        socket,
        "--save",
        "",
        "--dir",
        folder,
    ]
    url = f"unix://{socket}"
    with _running(command, folder / "redis.log", {}) as server, redis.Redis.from_url(url) as client:

        def ready() -> bool:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

        _wait(server, ready, folder / "redis.log")
        yield url


@contextmanager
def _running(command: list[Any], log: Path, who: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as said:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd="/", **who
        )
        try:
            yield server
        finally:
            server.send_signal(signal.SIGINT)  # both: end now, whoever is connected
            try:
                server.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(server: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not ready():
        if server.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the server did not start:\n{log.read_text()}")
        time.sleep(0.02)
