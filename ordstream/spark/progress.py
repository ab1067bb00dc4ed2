"""Live counts and reports from the nodes in Spark's Python workers to the driver, over an authenticated TCP
connection.

Spark's accumulators reach the driver only when a task ends, so a node says itself how far it is. The driver
listens on 127.0.0.1, and on another address only where the user asks for it (`listen=`). A node opens one
connection per task attempt and answers the driver's challenge with the secret that it was shipped with,
which does not cross the network itself; then it sends frames: a 4-byte big-endian length and that many bytes
of JSON. Frames are not signed: whoever can change packets on the way can change a count, or stop a node.

A node on another host than the driver's knows that from the door. Where the driver listens on no address
for it, it connects to nobody: whoever listens on that port of its own host is somebody else. Its report
travels by Spark then, when the task has ended (`late_reports.py`), and a cancelled node is ended by Spark:
it closes the task's connection, which the watchdog sees, or kills the worker after two to three seconds.

The other way go single bytes. The driver knows the node; it has taken the node's report, for which the node
waits at its end, so that the report is there when Spark has the task's result; the node's stage is over,
without the node having ended (Spark itself tells a Python worker that its job was cancelled by a kill
signal, after two to three seconds); the driver stops listening. A connection that ends without that last
word tells the node that the driver's process has ended, and nobody waits for its rows any more.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import secrets
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ordstream.errors import PlanError
from ordstream.node.merged_report import last_attempts
from ordstream.operators.functions import check_arguments

HOST = "127.0.0.1"
CHALLENGE_BYTES = 16  # that the driver sends first
HELLO_BYTES = 512  # largest first frame, read before the sender is trusted
FRAME_BYTES = 4 << 20  # largest later frame: a report
HELLO_SECONDS = 5.0  # to prove the secret
SEND_SECONDS = 2.0  # after which a node gives up on a driver that doesn't read
# after which a node no longer waits for the driver to take its report: a user's callback may hold it up
TAKE_SECONDS = 10.0
INTERVAL_SECONDS = 0.1  # between two counts of a node
LOOK_SECONDS = 0.1  # between two looks of the driver at Spark's active stages
KNOWN, TAKEN, CANCEL, LEFT = b"K", b"T", b"C", b"L"  # what the driver says


class TaskKey(NamedTuple):
    """Which task attempt a message is about."""

    stage: int
    partition: int
    attempt: int


Late = Callable[[TaskKey, dict[str, Any]], None]
"""Takes the last message of a node that could not send it live."""


class Door(NamedTuple):
    """How a node reaches its driver: shipped to the workers inside the task.

    Attributes
    ----------
    port : int
        At the driver's loopback interface.
    channel : int
        Number at the listener.
    secret : str
    host : str
        The driver's (`this_host`).
    address : (str, int) or None
        Where the driver listens for nodes on other hosts.
    late : Late, optional
        Another way for the report.
    """

    port: int
    channel: int
    secret: str
    host: str
    address: tuple[str, int] | None = None
    late: Late | None = None


OnProgress = Callable[[int], None]
"""Called in a driver thread with the number of rows that the nodes have processed."""
OnReport = Callable[[TaskKey, dict[str, Any]], None]
"""Called in a driver thread with a finished node's report."""


def check_told(report: Any, progress: Any, listen: Any, presorted: Any) -> None:
    """Raise PlanError for what can't be called when a node tells something, or is no address."""
    if not (report is None or callable(report) or isinstance(report, Channel)):
        raise PlanError(f"report takes a function of (task, report), or a Channel; got {report!r:.80}")
    if not (progress is None or callable(progress)):
        raise PlanError(f"progress takes a function of the number of rows; got {progress!r:.80}")
    if report is not None and not isinstance(report, Channel):
        check_arguments(report, "report", "report(task, report)")
    if progress is not None:
        check_arguments(progress, "progress", "progress(rows)")
    if not (listen is None or isinstance(listen, str)):
        raise PlanError(f"listen takes an address of this host, such as '10.0.0.5:7077'; got {listen!r:.80}")
    if not isinstance(presorted, bool):
        raise PlanError(f"presorted must be True or False, got {presorted!r:.80}")


@dataclass
class Channel:
    """What the nodes of one `apply` have told so far.

    Attributes
    ----------
    reports : dict
        Report of each task attempt whose node finished.
    latest : dict
        Of each partition of each stage only the last one: an attempt that failed behind its node, or was
        overtaken by another one, does not count.
    active_stages : callable, optional
        Returns the ids of the stages that Spark runs now; then nodes of cancelled jobs are told to stop.
    keeps : bool
        Keep reports and counts; off where nobody can ask for them.
    number : int
        At the listener, which keeps a channel for the life of the process, or until it is closed: a
        DataFrame may be used at any time.
    """

    on_progress: OnProgress | None = None
    on_report: OnReport | None = None
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    reports: dict[TaskKey, dict[str, Any]] = field(default_factory=dict)
    active_stages: Callable[[], set[int]] | None = None
    keeps: bool = True
    number: int = 0  # at the listener; 0: none yet
    _counts: dict[TaskKey, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> int:
        """Rows processed by the latest attempt of each partition of the latest stage."""
        with self._lock:
            stage = max((key.stage for key in self._counts), default=-1)
            latest: dict[int, tuple[int, int]] = {}
            for key, count in self._counts.items():
                if key.stage == stage:
                    latest[key.partition] = max(latest.get(key.partition, (-1, 0)), (key.attempt, count))
            return sum(count for _, count in latest.values())

    @property
    def latest(self) -> dict[TaskKey, dict[str, Any]]:
        """The reports that count: one per stage and partition."""
        with self._lock:
            return last_attempts(self.reports)

    def take(self, key: TaskKey, message: dict[str, Any]) -> None:
        """Take one message of a node, and tell the user."""
        self.keep(key, message)
        self.tell(key, message)

    def keep(self, key: TaskKey, message: dict[str, Any]) -> None:
        """Take one message of a node: `count` and `report` are what they should be, or are not there."""
        if not self.keeps:
            return
        count, report = message.get("rows"), message.get("report")
        with self._lock:
            if isinstance(count, int):
                self._counts[key] = count
            if isinstance(report, dict):
                self.reports[key] = report

    def tell(self, key: TaskKey, message: dict[str, Any]) -> None:
        """Call the user's functions for a message that was kept."""
        if self.keeps and isinstance(message.get("rows"), int) and self.on_progress is not None:
            self.on_progress(self.rows)
        if self.keeps and isinstance(message.get("report"), dict) and self.on_report is not None:
            self.on_report(key, message["report"])


class Listener:
    """The driver's end: a socket and an accepting thread per address and process, started at first use.

    Thread safety: all methods. Memory ownership: channels are kept until closed, or for the life of the
    process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: dict[str, socket.socket] = {}  # by the text that asked for them
        self._channels: dict[int, Channel] = {}
        self._nodes: dict[socket.socket, tuple[int, Channel]] = {}  # connection -> stage, channel
        self._looking = False
        self._next = 1

    def open(self, channel: Channel, listen: str | None = None) -> Door:
        """Start to listen for the nodes of a channel: on the loopback interface and, with `listen`, on this
        address ("10.0.0.5" or "10.0.0.5:7077"), which nodes on other hosts connect to.

        Raises
        ------
        PlanError
            If `listen` is no address of this host.
        """
        with self._lock:
            port = self._listening(HOST)[1]
            address = None if listen is None else self._listening(listen)
            if channel.number == 0:
                channel.number, self._next = self._next, self._next + 1
            self._channels[channel.number] = channel
            return Door(port, channel.number, channel.secret, this_host(), address)

    def close(self, door: Door) -> None:
        """Stop to listen for the nodes of a channel."""
        with self._lock:
            self._channels.pop(door.channel, None)

    def channel(self, number: int) -> Channel | None:
        """The channel of this number; None: it was closed."""
        with self._lock:
            return self._channels.get(number)

    def _listening(self, text: str) -> tuple[str, int]:
        """Host and port of the socket for `text`, which is opened the first time."""
        if text not in self._sockets:
            self._sockets[text] = made = _server(text)
            threading.Thread(
                target=self._accept, args=(made,), name="spark-progress-listener", daemon=True
            ).start()
        host, port = self._sockets[text].getsockname()[:2]
        return host, port

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(connection,), name="spark-progress-node", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        # whatever is wrong with a sender (ValueError: not JSON, too long, KeyError: no such field) ends its
        # connection only
        with connection, contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            connection.settimeout(HELLO_SECONDS)
            challenge = secrets.token_bytes(CHALLENGE_BYTES)
            connection.sendall(challenge)
            hello = _receive(connection, HELLO_BYTES)
            channel = self.channel(hello["channel"])
            key = TaskKey(*(int(hello[name]) for name in TaskKey._fields))
            expected = _proof(channel.secret if channel is not None else "", challenge, key)
            if not hmac.compare_digest(str(hello["proof"]).encode(), expected.encode()) or channel is None:
                return
            connection.settimeout(None)
            connection.sendall(KNOWN)
            self._watch(connection, key.stage, channel)
            try:
                while True:
                    message = _receive(connection, FRAME_BYTES)
                    channel.take(key, message)
                    if "report" in message:
                        connection.sendall(TAKEN)
            finally:
                with self._lock:
                    self._nodes.pop(connection, None)
                with contextlib.suppress(OSError):
                    connection.sendall(LEFT)

    def _watch(self, connection: socket.socket, stage: int, channel: Channel) -> None:
        """Tell the node when its stage is over; one thread looks, while there are nodes."""
        if channel.active_stages is None:
            return
        with self._lock:
            self._nodes[connection] = (stage, channel)
            if self._looking:
                return
            self._looking = True
        threading.Thread(target=self._look, name="spark-stage-watch", daemon=True).start()

    def _look(self) -> None:
        # Spark's list lags behind its tasks: only a stage that was active can be over, and it must be so
        # twice
        missed: dict[socket.socket, int] = {}  # of nodes whose stage was seen active: looks without it
        while True:
            time.sleep(LOOK_SECONDS)
            with self._lock:
                nodes = dict(self._nodes)
                if not nodes:
                    self._looking = False
                    return
            active = {id(channel): _active(channel) for _, channel in nodes.values()}
            for connection, (stage, channel) in nodes.items():
                stages = active[id(channel)]
                if stages is None or stage in stages:
                    missed[connection] = 0
                elif connection in missed:
                    missed[connection] += 1
                    if missed[connection] == 2:
                        with contextlib.suppress(OSError):
                            connection.sendall(CANCEL)
            missed = {connection: count for connection, count in missed.items() if connection in nodes}


def _active(channel: Channel) -> set[int] | None:
    """Active stages; None where Spark can't be asked (any more)."""
    try:
        return channel.active_stages() if channel.active_stages is not None else None
    except Exception:  # the session was stopped: py4j raises several kinds
        return None


LISTENER = Listener()


class Reporter:
    """The node's end: sends the count every INTERVAL_SECONDS from its own thread, and the report at the end.

    Parameters
    ----------
    door : Door or None
        None: report nothing.
    key : TaskKey
        The task attempt.
    count : callable
        Returns the number of rows processed; called from the reporter's thread.
    cancel : callable, optional
        Called from the reporter's thread when the driver says that the task's stage is over, or has itself
        ended.
    """

    def __init__(
        self,
        door: Door | None,
        key: TaskKey,
        count: Callable[[], int],
        cancel: Callable[[], None] | None = None,
    ) -> None:
        self._key, self._late = key, None if door is None else door.late
        self._count = count
        self._cancel = cancel
        self._socket = _connect(door, key)
        self._thread: threading.Thread | None = None
        if self._socket is not None:
            self._wake, self._woken = socket.socketpair()  # ends the thread's wait for the driver
            self._thread = threading.Thread(target=self._run, name="ordstream-reporter", daemon=True)
            self._thread.start()

    def finish(self, report: dict[str, Any] | None) -> None:
        """Send the last count and the report, and wait until the driver has taken them: it may ask for
        them once the task has ended. Where it has not, they go the late way, if there is one.
        """
        self._join()
        message, told = {"rows": self._count(), "report": report}, b""
        if self._send(message):
            end = time.monotonic() + TAKE_SECONDS
            while (left := end - time.monotonic()) > 0 and (told := self._told(left)) in (KNOWN, CANCEL):
                pass
        if told != TAKEN and self._late is not None:
            self._late(self._key, message)

    def close(self) -> None:
        """Stop the thread and close the connection; may be called more than once."""
        self._join()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _join(self) -> None:
        if self._thread is not None:
            self._wake.close()
            self._thread.join()
            self._thread = None
            self._woken.close()

    def _run(self) -> None:
        assert self._socket is not None
        last, known, heard = -1, False, True
        due = time.monotonic() + INTERVAL_SECONDS
        while True:
            ready = select.select([self._socket, self._woken], [], [], max(0.0, due - time.monotonic()))[0]
            if self._woken in ready:
                return
            if ready:
                told = self._told()
                if told == KNOWN:
                    known = True
                    continue
                if self._cancel is not None and (told == CANCEL or (known and told != LEFT)):
                    self._cancel()
                return
            count = self._count()
            if heard and count != last:
                heard = self._send({"rows": count})
            last = count
            due = time.monotonic() + INTERVAL_SECONDS

    def _told(self, seconds: float = SEND_SECONDS) -> bytes:
        """The driver's next word; none: the connection has ended, or so many seconds are over."""
        assert self._socket is not None
        try:
            self._socket.settimeout(seconds)
            return self._socket.recv(1)
        except OSError:
            return b""

    def _send(self, message: dict[str, Any]) -> bool:
        if self._socket is None:
            return False
        try:
            _send(self._socket, message)
        except (
            OSError,
            ValueError,
        ):  # the driver is gone or the report too long: the job itself is not touched
            return False
        return True


def this_host() -> str:
    """What tells this loopback interface from every other one: the machine, as it was started, and the
    container.
    """
    with contextlib.suppress(OSError):
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{started} {Path('/proc/self/ns/net').readlink()}"
    return socket.gethostname()


_said: set[str] = set()  # hosts of drivers, once each in the life of a worker


def _connect(door: Door | None, key: TaskKey) -> socket.socket | None:
    if door is None:
        return None
    address: tuple[str, int] | None = (HOST, door.port)
    if door.host != this_host():
        address = door.address
    if address is None:
        if door.late is None and door.host not in _said:
            _said.add(door.host)
            print("ordstream: the driver is on another host: no live reports from here", file=sys.stderr)
        return None
    try:
        connection = socket.create_connection(address, timeout=SEND_SECONDS)
        challenge = _exactly(connection, CHALLENGE_BYTES)
        proof = _proof(door.secret, challenge, key)
        _send(connection, {"channel": door.channel, "proof": proof} | key._asdict())
    except OSError:
        return None
    return connection


def _proof(secret: str, challenge: bytes, key: TaskKey) -> str:
    """What only who knows the secret can answer to the challenge."""
    return hmac.new(secret.encode(), challenge + repr(tuple(key)).encode(), "sha256").hexdigest()


def _server(text: str) -> socket.socket:
    """A listening socket for "HOST" or "HOST:PORT"; an IPv6 address with a port is in brackets.

    Raises
    ------
    PlanError
        If that is no address of this host, or all of them.
    """
    host, port = text, 0
    if text.startswith("[") or text.count(":") == 1:
        host, _, number = text.rpartition(":")
        host, port = host.strip("[]"), int(number) if number.isdecimal() else -1
    try:
        if not 0 <= port < 1 << 16:
            raise ValueError("no such port")
        family, _, _, _, address = socket.getaddrinfo(host or "::", port, type=socket.SOCK_STREAM)[0]
        everywhere = ipaddress.ip_address(address[0]).is_unspecified
        server = None if everywhere else socket.create_server(address[:2], family=family)
    except (OSError, OverflowError, ValueError) as error:
        raise PlanError(
            f"listen={text!r}: this host can't listen there ({error}): give an address of its own that "
            "executors reach, such as '10.0.0.5' or '10.0.0.5:7077'"
        ) from error
    if server is None:
        raise PlanError(f"listen={text!r} is every address of this host: name the one that executors reach")
    return server


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    if len(data) > FRAME_BYTES:
        raise ValueError(f"a message of {len(data)} bytes is longer than {FRAME_BYTES}")
    connection.sendall(struct.pack(">I", len(data)) + data)


def _receive(connection: socket.socket, limit: int) -> dict[str, Any]:
    """Receive one frame.

    Raises
    ------
    OSError
        If the other side is gone.
    ValueError
        If the frame is longer than `limit` or not a JSON object.
    """
    (length,) = struct.unpack(">I", _exactly(connection, 4))
    if length > limit:
        raise ValueError(f"a frame of {length} bytes, {limit} allowed")
    message = json.loads(_exactly(connection, length))
    if not isinstance(message, dict):
        raise ValueError("a frame that is not a JSON object")
    return message


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = connection.recv(min(length - len(data), 65_536))
        if not part:
            raise ConnectionError("closed by the other side")
        data += part
    return bytes(data)
