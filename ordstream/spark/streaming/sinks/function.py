"""Function: each epoch's rows are handed to a function of the user's, at least once."""

from __future__ import annotations

import inspect
import os
import re
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ordstream.errors import CheckpointError, PlanError, SinkError, shown
from ordstream.ground.choices import is_text
from ordstream.snapshots.files import Damaged, Files, checked_json, read_json
from ordstream.spark.streaming.input_digest import InputDigest
from ordstream.spark.streaming.sinks.epoch_rows import batches
from ordstream.spark.streaming.sinks.sink import Epoch, StreamInfo, failed_on

FORMAT = {"format": "ordstream function sink", "version": 1}


class Function:
    """Calls a function with the rows of every epoch that has any, in order, on the driver. At least once.

    When the function has returned, a file under the checkpoint says so. A driver that is killed between the
    two calls it again with the same epoch, the same rows and the same key; nothing in between can know
    whether the first call has done its work. So the function must do no harm when it is called again: by
    ignoring a key that it has seen, in the same transaction in which it writes; or by replacing what it
    wrote under that key. (``_serial``, ``_index``) is such a key for a single row.

    Parameters
    ----------
    function : callable
        ``function(batch_id, rows, key)``. `batch_id` (int) is the epoch. `rows` (pyarrow.Table) has the
        pipeline's columns, then `_serial` and `_index` (int64), in order: all rows of the epoch, in the
        driver's memory. `key` (str) is different for each epoch of each stream, and the same when an epoch
        comes again. What the function returns is ignored; what it raises ends the query, and the epoch comes
        again at the next start.
    name : str
        Of this sink in the checkpoint. Two functions of one stream need two names; a function that takes
        another one's place, and must see everything from the start, needs a new one.

    Raises
    ------
    PlanError
        `function` can't be called with three arguments, or does nothing when it is called (``async def``, a
        generator); or `name` can't be that of a file.
    """

    def __init__(self, function: Callable[[int, pa.Table, str], Any], *, name: str = "function") -> None:
        if not callable(function):
            raise PlanError(f"Function needs a function (batch_id, rows, key), not {_name(function)}")
        _check_called(function)
        if not is_text(name) or not re.fullmatch(r"\w[\w-]{0,99}", name):
            raise PlanError(f"name must be letters, digits, '_' and '-', 100 at most, not {shown(name, 80)}")
        self.function = function
        self.name = name
        self._files = Files()
        self._stream: StreamInfo | None = None
        self._delivered: int | None = None
        self._digest: str | None = None  # of the rows of the epoch that was noted

    def __repr__(self) -> str:
        return f"Function({_name(self.function)})"

    def open(self, stream: StreamInfo) -> None:
        """Read how far the function was called.

        Raises
        ------
        CheckpointError
            The file that says so is damaged, or of another stream.
        """
        self._stream = stream
        path = self._note_path
        for half in path.parent.glob(f".{path.name}-*.tmp"):  # of killed drivers
            half.unlink(missing_ok=True)
        self._delivered, self._digest = self._noted()

    def delivered(self) -> int | None:
        """The newest epoch for which the function is known to have returned, or that had no rows."""
        return self._delivered

    def deliver(self, epoch: Epoch) -> None:
        """Call the function, then note it.

        Raises
        ------
        SinkError
            The function raised, or returned what still has to run; or it can't be noted that it returned. It
            will be called again.
        CheckpointError
            Somebody else notes under this name; or the function has had other rows as this epoch: the stream
            was taken back, and this sink was not.
        """
        assert self._stream is not None, "open comes first"
        if self._delivered is not None and epoch.number <= self._delivered:
            self._check_same(epoch)
            return
        if not any(file.rows for file in epoch.files):
            self._delivered, self._digest = epoch.number, None
            return
        noted, _ = self._noted()
        if noted is not None and noted >= epoch.number:
            raise CheckpointError(
                f"{self._note_path}: another function of this stream, or another driver, has noted epoch "
                f"{noted} under this name. Two functions need two names: Function(f, name=...)"
            )
        schema = self._stream.schema
        rows = pa.Table.from_batches(batches(epoch, schema), schema=schema)
        try:
            _check_ran(self.function(epoch.number, rows, f"{self._stream.query}/{epoch.number}"))
        except Exception as error:  # what is none, the stream tells (query.py)
            raise failed_on(repr(self), epoch, error) from error
        self._note(epoch.number, _digest(rows.to_batches()))

    def _check_same(self, epoch: Epoch) -> None:
        """See that an epoch for which the function was called has the rows that it had then."""
        assert self._stream is not None
        if epoch.number != self._delivered or self._digest is None:
            return  # not known: an older release did not note it
        if _digest(batches(epoch, self._stream.schema)) != self._digest:
            raise CheckpointError(
                f"{self!r}: was called for epoch {epoch.number} with other rows than those that are "
                "committed now. If the stream was taken back to an earlier epoch, take the sink back too: "
                "od.spark.sinks.take_back(sink, checkpoint)"
            )

    def back_to(self, epoch: int | None) -> None:
        """Forget the calls for epochs behind this one (None: all); they come again. Called after `open`."""
        if self._delivered is None or (epoch is not None and epoch >= self._delivered):
            return
        if epoch is not None:
            self._note(epoch)
            return
        path = self._note_path
        if path.exists():
            self._files.remove(path)
            self._files.sync_folder(path.parent)
        self._delivered = self._digest = None

    def close(self) -> None:
        """Nothing is held open."""

    @property
    def _note_path(self) -> Path:
        assert self._stream is not None, "open comes first"
        return self._stream.checkpoint / "sinks" / f"{self.name}.json"

    def _noted(self) -> tuple[int | None, str | None]:
        """The epoch, and the digest of its rows."""
        assert self._stream is not None
        path = self._note_path
        try:
            said = read_json(path.read_bytes())
        except FileNotFoundError:
            return None, None
        except (OSError, Damaged, ValueError) as error:
            raise CheckpointError(
                f"{path}: damaged: {error}. Remove it if your function may see all epochs again: their "
                "keys are the same"
            ) from error
        if said.get("query") != self._stream.query or any(said.get(k) != v for k, v in FORMAT.items()):
            raise CheckpointError(f"{path}: it is of another stream, or of another version of ordstream")
        return int(said["epoch"]), said.get("digest")

    def _note(self, epoch: int, digest: str | None = None) -> None:
        assert self._stream is not None
        path = self._note_path
        half = path.with_name(f".{path.name}-{os.getpid():x}-{secrets.token_hex(8)}.tmp")
        try:
            self._files.folder(path.parent)
            with self._files.create(half) as file:
                said = {"query": self._stream.query, "epoch": epoch, "digest": digest}
                content = checked_json(FORMAT | said)
                self._files.write(file, content)
                self._files.sync(file)
            half.replace(path)
            self._files.sync_folder(path.parent)
        except OSError as error:
            raise SinkError(
                f"{path}: epoch {epoch} was delivered, but that can't be noted: {error.strerror or error}. "
                "It comes again at the next start"
            ) from error
        self._delivered, self._digest = epoch, digest


def _digest(rows: Iterable[pa.RecordBatch]) -> str:
    found = InputDigest()
    for batch in rows:
        found.add(batch)
    return found.hexdigest()


def _name(function: Any) -> str:
    try:
        return str(getattr(function, "__qualname__", None) or repr(function))
    except Exception:  # an object of the user's that can't show itself
        return type(function).__name__


def _check_called(function: Callable[..., Any]) -> None:
    """Raise PlanError for a function that a call with three arguments does not run."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(kind(one) for kind in kinds for one in (function, type(function).__call__)):
        raise PlanError(
            f"Function needs a function that has done its work when it returns; of {_name(function)} a call "
            "only makes a coroutine or a generator. Give a plain function, which may call asyncio.run(...)"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return
    try:
        signature.bind(0, None, "")
    except TypeError as error:
        raise PlanError(
            f"Function calls {_name(function)} with three arguments (batch_id, rows, key), which it does "
            f"not take: {error}"
        ) from None


def _check_ran(returned: object) -> None:
    """Raise TypeError where the work is still to be done by what was returned."""
    if inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        if inspect.iscoroutine(returned):
            returned.close()  # else Python warns that nobody awaited it
        raise TypeError(
            f"it returned a {type(returned).__name__}, which nobody runs; run it inside: asyncio.run(...)"
        )
