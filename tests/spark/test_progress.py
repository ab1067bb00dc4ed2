"""The progress connection alone: what a node sends arrives; a stranger is not listened to. No Java
needed.
"""

import contextlib
import pickle
import socket
import struct
import threading
import time

import pytest

pytest.importorskip("pyspark")

import ordstream as od
from ordstream.spark import late_reports, progress
from ordstream.spark.progress import LISTENER, Channel, Reporter, TaskKey

KEY = TaskKey(stage=3, partition=0, attempt=1)


@pytest.fixture
def channel():
    return Channel()


@pytest.fixture
def door(channel):
    door = LISTENER.open(channel)
    yield door
    LISTENER.close(door)


def greeting(stranger, door, key=KEY, **wrong):
    """What a node says first, in answer to the driver's challenge."""
    challenge = progress._exactly(stranger, progress.CHALLENGE_BYTES)
    proof = progress._proof(wrong.pop("secret", door.secret), challenge, key)
    progress._send(stranger, {"channel": door.channel, "proof": proof} | key._asdict() | wrong)


@contextlib.contextmanager
def driver_that(act):
    """A driver of another kind: its port. `act` has the connection of the first node."""
    with socket.create_server((progress.HOST, 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"?" * progress.CHALLENGE_BYTES + progress.KNOWN)
                act(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_counts_arrive_while_the_node_works_and_the_report_at_its_end(channel, door):
    told = []
    channel.on_progress = told.append
    rows = 5
    reporter = Reporter(door, KEY, lambda: rows)
    wait_for(lambda: channel.rows == 5)
    rows = 8
    wait_for(lambda: channel.rows == 8)
    rows = 9
    reporter.finish({"tuples": 9})
    reporter.close()
    reporter.close()
    wait_for(lambda: channel.reports == {KEY: {"tuples": 9}})
    assert sorted(set(told)) == [5, 8, 9]  # the node's thread may have sent the last count by itself
    assert told == sorted(told)


def test_a_node_has_ended_when_its_report_was_taken(channel, door):
    """Whoever asks for it once Spark has the task's result finds it, however late the driver's thread
    gets to it.
    """
    behind = threading.Event()

    def slow(_):
        behind.set()
        time.sleep(0.5)

    channel.on_progress = slow
    reporter = Reporter(door, KEY, lambda: 1)
    assert behind.wait(60)
    reporter.finish({"tuples": 1})
    assert channel.reports == {KEY: {"tuples": 1}}
    reporter.close()


@pytest.mark.parametrize("end", ["callback fails", "driver ends", "driver stands still"])
def test_a_node_does_not_wait_for_a_driver_that_does_not_take_its_report(channel, door, monkeypatch, end):
    monkeypatch.setattr(progress, "TAKE_SECONDS", 0.3 if end == "driver stands still" else 1e6)
    if end == "callback fails":

        def fails(*_):
            raise ValueError("a callback of the user's")

        channel.on_report = fails
        reporter = Reporter(door, KEY, lambda: 1)
        reporter.finish({"tuples": 1})
    else:
        ended = threading.Event()

        def act(connection):
            if end == "driver ends":
                connection.shutdown(socket.SHUT_WR)
            ended.wait(60)

        with driver_that(act) as port:
            reporter = Reporter(door._replace(port=port), KEY, lambda: 1)
            reporter.finish({"tuples": 1})
            ended.set()
    reporter.close()


def test_a_second_attempt_replaces_the_first_and_a_second_stage_the_first(channel):
    channel.take(TaskKey(1, 0, 0), {"rows": 50})
    channel.take(TaskKey(1, 0, 1), {"rows": 10})
    channel.take(TaskKey(1, 1, 0), {"rows": 7})
    assert channel.rows == 17
    channel.take(TaskKey(1, 0, 0), {"rows": 60})  # the first attempt was late
    assert channel.rows == 17
    channel.take(TaskKey(4, 0, 0), {"rows": 3})
    assert channel.rows == 3


@pytest.mark.parametrize(
    "wrong",
    [{"secret": "0" * 64}, {"secret": ""}, {"channel": 0}, {"channel": []}, {"stage": "x"}, {"stage": 4}],
)
def test_a_stranger_is_not_listened_to(channel, door, wrong):
    with socket.create_connection((progress.HOST, door.port), timeout=60) as stranger:
        greeting(stranger, door, **wrong)
        assert stranger.recv(1) == b""
    assert channel.rows == 0


def test_an_answer_fits_one_challenge_only(channel, door):
    """Who has listened to a node can't repeat what it said."""
    with socket.create_connection((progress.HOST, door.port), timeout=60) as known:
        challenge = progress._exactly(known, progress.CHALLENGE_BYTES)
        said = {"channel": door.channel, "proof": progress._proof(door.secret, challenge, KEY)}
        progress._send(known, said | KEY._asdict())
        assert known.recv(1) == progress.KNOWN
    assert door.secret not in str(said)
    with socket.create_connection((progress.HOST, door.port), timeout=60) as stranger:
        progress._exactly(stranger, progress.CHALLENGE_BYTES)
        progress._send(stranger, said | KEY._asdict())
        assert stranger.recv(1) == b""


def test_long_and_broken_frames_end_the_connection(channel, door):
    for first in (
        struct.pack(">I", progress.HELLO_BYTES + 1),
        struct.pack(">I", 3) + b"{,}",
        struct.pack(">I", 2) + b"[]",
    ):
        with socket.create_connection((progress.HOST, door.port), timeout=60) as stranger:
            progress._exactly(stranger, progress.CHALLENGE_BYTES)
            stranger.sendall(first)
            assert stranger.recv(1) == b""
    with socket.create_connection((progress.HOST, door.port), timeout=60) as known:
        greeting(known, door)
        progress._send(known, {"rows": 4})
        wait_for(lambda: channel.rows == 4)
        known.sendall(struct.pack(">I", progress.FRAME_BYTES + 1))
        assert [known.recv(1) for _ in range(3)] == [progress.KNOWN, progress.LEFT, b""]


def test_a_node_works_on_without_a_driver(channel, door):
    LISTENER.close(door)
    for where in (None, door, door._replace(port=1)):
        reporter = Reporter(where, KEY, lambda: 1)
        reporter.finish({"tuples": 1})
        reporter.close()
    assert channel.reports == {}


def test_only_the_loopback_interface_listens(door):
    assert door.address is None
    assert LISTENER._sockets["127.0.0.1"].getsockname()[0] == "127.0.0.1"
    assert any(
        thread.name == "spark-progress-listener" and thread.daemon for thread in threading.enumerate()
    )


def test_a_node_is_told_when_its_stage_is_over_but_not_before_spark_lists_it(channel, door, monkeypatch):
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.02)
    active, looks, cancelled = set(), [], threading.Event()

    def stages():
        looks.append(set(active))
        return set(active)

    channel.active_stages = stages
    reporter = Reporter(door, KEY, lambda: 1, cancelled.set)
    wait_for(lambda: len(looks) > 5)
    assert not cancelled.is_set()  # Spark's list is late
    active.add(KEY.stage)
    wait_for(lambda: {KEY.stage} in looks)
    active.clear()
    assert cancelled.wait(60)
    reporter.close()


def test_a_node_is_told_when_the_driver_has_ended_but_not_when_it_stops_listening(channel, door):
    lost, left = threading.Event(), threading.Event()
    stopped = Channel()

    def fails(_):
        raise ValueError("a callback of the user's")

    stopped.on_progress = fails
    other = Reporter(LISTENER.open(stopped), KEY, lambda: 1, left.set)
    wait_for(lambda: not other._thread.is_alive())  # it was told
    assert not left.is_set()
    other.close()
    gone = threading.Event()
    with driver_that(lambda _: gone.wait(60)) as port:
        orphan = Reporter(door._replace(port=port), KEY, lambda: 1, lost.set)
        assert not lost.is_set()
        gone.set()
    assert lost.wait(60)
    orphan.close()


def test_of_two_attempts_the_last_report_counts(channel):
    for attempt, partition in ((0, 0), (1, 0), (0, 1)):
        channel.take(TaskKey(1, partition, attempt), {"report": {"tuples": 10 * attempt + partition}})
    assert channel.latest == {TaskKey(1, 0, 1): {"tuples": 10}, TaskKey(1, 1, 0): {"tuples": 1}}


def test_a_node_on_another_host_connects_to_nobody_and_says_so_once(channel, door, monkeypatch, capfd):
    strangers = []
    monkeypatch.setattr(socket, "create_connection", lambda *given, **named: strangers.append(given))
    monkeypatch.setattr(progress, "_said", set())
    elsewhere = door._replace(host="another")
    for _ in range(2):
        reporter = Reporter(elsewhere, KEY, lambda: 5)
        reporter.finish({"tuples": 5})
        reporter.close()
    assert not strangers
    assert capfd.readouterr().err.count("no live reports from here") == 1


def test_a_node_on_another_host_comes_to_the_address_that_the_user_named(channel):
    door = LISTENER.open(channel, "127.0.0.2")._replace(host="another")
    assert door.address[0] == "127.0.0.2"
    reporter = Reporter(door, KEY, lambda: 5)
    reporter.finish({"tuples": 5})
    reporter.close()
    assert channel.reports == {KEY: {"tuples": 5}}
    assert LISTENER.open(channel, "127.0.0.2").address == door.address  # one socket
    LISTENER.close(door)


@pytest.mark.parametrize(
    ("listen", "text"),
    [
        ("0.0.0.0", "every address"),
        ("[::]:7077", "every address"),
        ("", "every address"),
        ("192.0.2.1", "can't listen there"),
        ("127.0.0.1:x", "can't listen there"),
        ("127.0.0.1:99999", "can't listen there"),
    ],
)
def test_an_address_that_is_no_address_of_this_host_is_refused(channel, listen, text):
    with pytest.raises(od.PlanError, match=text) as error:
        LISTENER.open(channel, listen)
    assert repr(listen) in str(error.value)


@pytest.mark.parametrize("door_is_open", [True, False])
def test_a_report_that_was_not_taken_live_goes_the_late_way(channel, door, door_is_open):
    late = []
    with_late = door._replace(late=lambda *given: late.append(given), host=None)
    if door_is_open:
        with_late = with_late._replace(host=door.host)
    reporter = Reporter(with_late, KEY, lambda: 5)
    reporter.finish({"tuples": 5})
    reporter.close()
    message = {"rows": 5, "report": {"tuples": 5}}
    assert (channel.reports, late) == (
        ({KEY: message["report"]}, []) if door_is_open else ({}, [(KEY, message)])
    )


def test_an_accumulator_hands_reports_to_their_channel_and_keeps_none(channel, door):
    """As Spark does it: the driver's parameter goes to the task and is another one there."""
    told = threading.Event()
    channel.on_report = lambda *_: told.set()
    delivered = late_reports._Delivered()
    carried = pickle.loads(pickle.dumps(delivered))
    message = {"rows": 3, "report": {"tuples": 3}}
    update = carried.addInPlace(carried.zero(None), {(door.channel, KEY): message})
    assert channel.reports == {}
    assert delivered.addInPlace({}, update) == {}
    assert (channel.reports, channel.rows) == ({KEY: {"tuples": 3}}, 3)
    assert told.wait(60)
    LISTENER.close(door)
    assert delivered.addInPlace({}, update) == {}
