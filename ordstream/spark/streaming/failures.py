"""How the failure of a micro-batch is told: to the user, and to Spark."""

from __future__ import annotations

import ast
import contextlib
import re
import traceback

from py4j.protocol import Py4JError, Py4JNetworkError

from ordstream import errors
from ordstream.errors import CheckpointError, NodeLost, OperatorError, OrdstreamError, SourceError

#: What a Python trace ends with where the error is ours, in what Spark makes of a failed task: its first
#: line, and those below it that say where (the user's file and line, the row).
_TOLD = re.compile(r"^ordstream\.errors\.(\w+): (.*(?:\n  .*)*)$", re.MULTILINE)
#: Characters of a trace that go to Spark, and so into its log.
LOGGED = 20_000
#: Behind this Spark looks in a text for one of `_INTERRUPTIONS` once it has stopped the query, with a
#: pattern that takes stack for each character: its thread dies of some thousands of them.
_SOUGHT = "py4j.protocol.Py4JJavaError: An error occurred while calling"
#: How Spark says that another driver has written into its log, before this one, what it was about to write.
_CONCURRENT = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "SparkConcurrentModificationException",
    "Multiple streaming jobs detected",
    "Multiple streaming queries are concurrently using",
)
#: How Spark says that it starts this query already. What it keeps of a start that failed then stays, and so
#: does this, until the session has ended.
_STARTED = "CONCURRENT_QUERY"
#: How Spark says that it can't read a source (KD), or compute a column (22).
_ROWS = re.compile(r"\[([A-Z][A-Z0-9_.]*)\] ((?:(?!SQLSTATE).)*?)\s*SQLSTATE: (?:22|KD)\w{3}", re.DOTALL)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.*)$", re.MULTILINE)
#: How an `OperatorError` is written.
_OPERATOR = re.compile(r"operator (.+?) failed at serial (\d+)(.*)", re.DOTALL)
_INTERRUPTIONS = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)


#: What Java, or a micro-batch's trace, says where the session was stopped.
_STOPPED = "Cannot call methods on a stopped SparkContext"


class StreamStopped(Exception):
    """Tells Spark that a micro-batch was not done."""


def without_spark(error: BaseException) -> NodeLost | None:
    """What an error says of the end of Spark itself, in our words; None: it says something else."""
    if isinstance(error, OrdstreamError):
        return None
    if _STOPPED in str(error):
        return session_stopped()
    # a bare Py4JError: Java's answer did not come, or another Java knows none of our objects
    if isinstance(error, OSError | Py4JNetworkError) or type(error) is Py4JError:
        return NodeLost(
            "Spark's Java process has ended, and the stream with it. What is committed stays: start Python "
            "again, and the stream with the same checkpoint"
        )
    return None


def session_stopped() -> NodeLost:
    """The error of a stream whose session was stopped."""
    return NodeLost(
        "the stream's Spark session was stopped, and the stream with it. What is committed stays: start "
        "another session, and the stream with the same checkpoint"
    )


def told_by_task(error: BaseException) -> BaseException:
    """Our error that a task or a source has raised, out of Spark's text with its traces; else the same."""
    found = None if isinstance(error, OrdstreamError) else _TOLD.findall(str(error))
    if not found:
        return overtaken(error) or _of_rows(error) or error
    kind, text = getattr(errors, found[-1][0], None), found[-1][1].strip()
    if not (isinstance(kind, type) and issubclass(kind, OrdstreamError)):
        return OrdstreamError(text)
    if issubclass(kind, OperatorError):
        return _of_operator(text) or OrdstreamError(text)
    return kind(text)


def _of_operator(text: str) -> OperatorError | None:
    """The error that has this text; None: there is none. A row that is shortened, or has values that Python
    does not read back, stays in the reason.
    """
    match = _OPERATOR.fullmatch(text)
    if match is None:
        return None
    rest, _, row = match[3].rpartition("\n  row: ")
    rest, _, place = rest.rpartition("\n  at: ") if "\n  at: " in rest else (rest, "", "")
    for fields in ((row, rest, place), ("None", match[3], "")):
        with contextlib.suppress(SyntaxError, ValueError):
            name, values = ast.literal_eval(match[1]), ast.literal_eval(fields[0])
            error = OperatorError(name, int(match[2]), values, fields[1].removeprefix(": "), fields[2])
            if str(error) == text:
                return error
    return None


def _of_rows(error: BaseException) -> SourceError | None:
    """What Spark says of rows that it can't read or compute; None: it says something else, or is not it."""
    text = str(error)
    match = None if isinstance(error, OrdstreamError) else _ROWS.search(text)
    if match is None:
        return None
    why = " ".join(match[2].split())
    cause = [one.strip() for one in _CAUSE.findall(text)]
    because = f" ({cause[-1]})" if cause and cause[-1] not in why else ""
    return SourceError(
        f"Spark can't read the rows of a micro-batch, or compute a column of them: [{match[1]}] "
        f"{why.rstrip('.')}{because}. Nothing of it is committed: mend the source, or the frame, and start "
        "the stream again with the same checkpoint"
    )


def overtaken(error: BaseException) -> CheckpointError | None:
    """What Spark says where two drivers have one checkpoint, in our words; None: it says something else."""
    if isinstance(error, OrdstreamError):
        return None
    if _STARTED in str(error):
        return CheckpointError(
            "this session starts a query with this checkpoint already, or such a start has failed: Spark "
            "remembers it until the session has ended. End the session, start another one, and the stream "
            "with the same checkpoint; what is committed stays"
        )
    if not any(one in str(error) for one in _CONCURRENT):
        return None
    return CheckpointError(
        "another driver writes Spark's log of this stream at the same time, so this one stops, and "
        "publishes no further epoch; what is committed stays. Two queries ran on one checkpoint: give one "
        "of them a checkpoint of its own"
    )


def for_java(error: BaseException) -> Exception:
    """The same, or what says it, as py4j can tell Spark: it catches what is an Exception only, and sends its
    trace as UTF-8. Of anything else Spark does not hear, and waits for ever.
    """
    trace = "".join(traceback.format_exception(error))
    text = trace.encode("utf-8", "replace").decode()  # a lone surrogate is no UTF-8
    found = [name for name in _INTERRUPTIONS if name in text] if _SOUGHT in text else []
    text = text.replace(_SOUGHT, _SOUGHT.removeprefix("py4j.protocol."))
    if len(text) > LOGGED:
        text = f"{text[: LOGGED // 2]}\n...\n{text[-LOGGED // 2 :]}"
    if found:
        text = f"{text.rstrip()}\n{_SOUGHT} Spark: {found[0]}"
    return error if isinstance(error, Exception) and text == trace else StreamStopped(text)
