"""Exceptions: each one is an `OrdstreamError` and also the built-in exception that a Python user would
expect.

When a pipeline is built: `SchemaError` (columns and types), `PlanError` (structure and arguments).
When a pipeline runs: `OperatorError`, `SourceError`, `SinkError`, `NodeLost`, `CheckpointError`,
`Cancelled`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any


class OrdstreamError(Exception):
    """Base class of everything that ordstream raises on purpose."""


class SchemaError(OrdstreamError, TypeError, ValueError):
    """A column is unknown, named twice, or of a wrong type. Raised when a pipeline is built."""


class PlanError(OrdstreamError, ValueError):
    """Operators are put together wrongly, or an argument of one is out of range. Raised while a pipeline is
    built.
    """


class NoSuchMethod(PlanError, AttributeError):
    """A method that can't be called here, with what can. `hasattr` is false then, as for any other name."""


class OperatorError(OrdstreamError, RuntimeError):
    """An operator could not process a tuple. The exception that it met is `__cause__`.

    Every output that the promise puts before the failing tuple has been delivered, none after it.

    Parameters
    ----------
    operator : str
        Name of the operator, as `explain()` shows it.
    serial : int
        Position of the source tuple that caused the failure, from 1. For a flush: the last tuple's serial
        (0: no tuples).
    row : mapping or None
        The operator's input tuple, column name to Python value; None when no single tuple failed (a flush).
    reason : str
        What happened, one line.
    place : str
        Where in the user's code, as "file:line, in function"; "" where it was not in the user's code.

    Attributes
    ----------
    order_tag : bytes
        Of the tuple, in a pipeline that is cut over nodes (`ordstream.ground.ordertags`); else empty.
    """

    order_tag: bytes = b""

    def __init__(
        self,
        operator: str,
        serial: int,
        row: Mapping[str, Any] | None = None,
        reason: str = "",
        place: str = "",
    ) -> None:
        self.operator = operator
        self.serial = serial
        self.row = None if row is None else dict(row)
        self.reason = reason
        self.place = place
        text = f"operator {operator!r} failed at serial {serial}"
        if reason:
            text += f": {reason}"
        if place:
            text += f"\n  at: {place}"
        if self.row is not None:
            text += f"\n  row: {_shortened(self.row)}"
        super().__init__(text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by fields: Spark sends this error from an executor to the driver."""
        state = {"order_tag": self.order_tag}
        return (type(self), (self.operator, self.serial, self.row, self.reason, self.place), state)


class SourceError(OrdstreamError, RuntimeError):
    """The source raised, ended badly, or sent a batch that does not match the source schema.

    Attributes
    ----------
    serial : int
        Of the tuple that is wrong, from 1; 0: no single one is.
    """

    serial: int = 0


class SinkError(OrdstreamError, RuntimeError):
    """The consumer of the output raised."""


class NodeLost(OrdstreamError, RuntimeError):
    """A process that ran a node ended before its work did: it was killed, or it crashed."""


class CheckpointError(OrdstreamError, RuntimeError):
    """A checkpoint can't be written, read, or does not fit the pipeline. Nothing was lost: the message says
    which file, and where there is one which key group, and what to do.
    """


class Cancelled(OrdstreamError):
    """The run was stopped from outside before its end."""


class Uncopied(OrdstreamError, RuntimeError):
    """The state of a function can't be copied, so a call that fails can't be undone."""

    @classmethod
    def because(cls, error: Exception) -> Uncopied:
        """With what to do about it. `error`: what the copy raised."""
        return cls(
            f"the state can't be copied ({told(error)}), which on_error= and retries need to undo a call "
            "that fails: declare its fields (state={...}), give it a codec (od.codec), or keep what can't "
            "be copied outside of it"
        )


#: What no row is to blame for: `on_error=` and retries leave it alone, and the run ends.
NO_ROWS_FAULT = (Cancelled, Uncopied)


def told(error: BaseException) -> str:
    """Type and text of an exception, at most 10,000 characters of it, in one line of code that can't fail: a
    user's class may not be able to show itself.
    """
    try:
        str(error)
    except Exception:
        return type(error).__name__
    return ": ".join(type_and_text(error, 10_000))


def shown(value: object, most: int = 200) -> str:
    """A value in the text of an error: at most so many characters, since a row may hold megabytes."""
    text = repr(value)
    if "\n" in text:  # a table, an array
        text = " ".join(text.split())
    return text if len(text) <= most else text[:most] + "..."


#: Of a stream in a process that was forked from its own, and of one that was not started for snapshots.
FORKED = "this stream was made before a fork; make a new one in the child process"
NO_SNAPSHOTS = "this stream takes no snapshots: start it with checkpoint='folder', or with snapshots=True"

#: What changes a list in its place.
_CHANGING = ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse")


def type_and_text(error: BaseException, most: int = 1000) -> tuple[str, str]:
    """Type and text of an exception, apart, as a dead letter has them; at most so many characters of the
    text, with "..." behind them where it has more, and none where a user's class can't show itself.
    """
    try:
        text = str(error)
    except Exception:
        text = ""
    text = text.encode("utf-8", "replace").decode()  # lone surrogates are no text
    if type(error) is AttributeError and type(getattr(error, "obj", None)) is SimpleNamespace:
        text += f"; a key's state begins empty: declare state={{{error.name!r}: int}}, or make it with init="
    if type(error) is TypeError and text.startswith("'types.SimpleNamespace' object "):
        text += (
            "; a key's state begins as an object without fields: declare state={'n': int}, or give init=dict"
        )
    changing = type(error) is AttributeError and error.name in _CHANGING
    if (changing and type(getattr(error, "obj", None)) is tuple) or (
        type(error) is TypeError and text == "'tuple' object does not support item assignment"
    ):
        text += (
            "; a list of a declared state is read as a tuple: assign a new one, state.x = [*state.x, value]"
        )
    return type(error).__name__, text if len(text) <= most else text[:most] + "..."


def _shortened(row: Mapping[str, Any], limit: int = 400) -> str:
    return shown(dict(row), limit)


def meant(name: str, there: Iterable[str]) -> str:
    """Which of the names `there` that a misspelled one is like, with a separator in front, or ""."""
    if name.startswith("_"):  # what Python and other libraries look for
        return ""
    import difflib  # as in `unknown_column`

    cutoff = 0.75 if len(name) < 8 else 0.7  # a short name is soon like another: any, tan
    close = difflib.get_close_matches(name, [one for one in there if one[0] != "_"], n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown_column(name: object, available: Iterable[str], where: str = "") -> SchemaError:
    """The error for a column that does not exist: names the available ones and the closest match."""
    # here: the command line imports this module before it is known whether anything else is needed
    import difflib

    names = list(available)
    place = f" in {where}" if where else ""
    if not isinstance(name, str):
        return SchemaError(
            f"a column is named by a str{place}, got {name!r}; compute an expression in with_columns first"
        )
    text = f"unknown column {name!r}{place}; available: {', '.join(map(repr, names)) or '(none)'}"
    close = difflib.get_close_matches(name, names, n=1)
    return SchemaError(f"{text}. Did you mean {close[0]!r}?" if close else text)
