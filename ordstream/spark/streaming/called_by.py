"""The connection by which Java calls a stream's function: py4j keeps one for each thread of Java's that
calls, for ever, at both ends. A query's thread ends with the query, so whoever ends the query closes it.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any, cast

from py4j.java_gateway import JavaObject
from py4j.protocol import GATEWAY_SERVER_OBJECT_ID
from pyspark import SparkContext


def called_by() -> socket.socket | None:
    """The connection by which Java calls in this thread."""
    try:
        return cast(socket.socket, _client().get_thread_connection().socket)
    except Exception:  # another version of py4j, or one connection for all threads
        return None


def hang_up(connection: socket.socket | None) -> None:
    """Close a connection whose thread in Java has ended, there and here; what is closed stays closed."""
    if connection is None:
        return
    with contextlib.suppress(Exception):  # closed; Java is gone; another version of py4j: it stays there
        _close_in_java(connection.getpeername()[1])
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _close_in_java(port: int) -> None:
    """Close what Java's client has connected at a port of Java's. The client's own way to be rid of
    connections, `periodicCleanup`, would take those of other queries that have nothing to do. Its lock is
    not taken: who is interrupted with it would hold up all calls for ever. What is read while another
    thread writes may lack ours, which stays open then.
    """
    client = JavaObject(GATEWAY_SERVER_OBJECT_ID, _client()).getCallbackClient()
    field = client.getClass().getSuperclass().getDeclaredField("connections")
    field.setAccessible(True)  # for subclasses only
    for one in field.get(client).toArray():
        at = None if one is None else one.getSocket()
        if at is not None and at.getLocalPort() == port:
            one.shutdown()


def _client() -> Any:
    gateway: Any = SparkContext._gateway
    return gateway._gateway_client
