"""What a node process tells its caller, as bytes. Exceptions of a script's own classes stay what they are.

A node has such a class by value, as it has the functions: another object than the caller's, which pickle
refuses. So it goes by its name, and the caller looks it up. What is not found there, or can't be pickled at
all, comes as an exception that tells its type and text.
"""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import replace
from typing import Any

from ordstream.errors import told
from ordstream.fragments.figures import Outcome

#: In a node: the classes that were sent by their names, to try what was pickled.
_OWN: dict[tuple[str, str], type] = {}


def dumps(answer: Any) -> bytes:
    """The answer as bytes, which the caller can load whatever a user's exception is."""
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)
    except BaseException:  # what a user's exception does to be pickled may raise anything
        plain = pickle.dumps(_told(answer))
        try:
            named = _by_name(answer)
        except BaseException:
            return plain
        return pickle.dumps(_Either(named, plain))
    return data


def _told(answer: Any) -> Any:
    """The answer with an exception of Python's own in place of the user's."""
    if isinstance(answer, Outcome) and answer.error is not None:
        return replace(answer, cause=RuntimeError(told(answer.cause or answer.error)))
    return RuntimeError(told(answer))


class _Either:
    """Two pickles: the second one is for a reader to whom the first one says nothing."""

    def __init__(self, named: bytes, plain: bytes) -> None:
        self.both = named, plain

    def __reduce__(self) -> tuple[Any, ...]:
        return _first_of, self.both


def _first_of(named: bytes, plain: bytes) -> Any:
    try:
        return pickle.loads(named)
    except Exception:  # of many kinds: an `__init__` may raise anything
        return pickle.loads(plain)


class _ByName(pickle.Pickler):
    """Classes of exceptions that modules of this process don't have are pickled by their names."""

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, type) or not issubclass(value, BaseException):
            return NotImplemented
        if _at(value.__module__, value.__qualname__) is value:
            return NotImplemented
        _OWN[value.__module__, value.__qualname__] = value
        return _class_of, (value.__module__, value.__qualname__)


def _by_name(answer: Any) -> bytes:
    into = io.BytesIO()
    try:
        _ByName(into).dump(answer)
        pickle.loads(into.getvalue())
    finally:
        _OWN.clear()
    return into.getvalue()


def _class_of(module: str, name: str) -> Any:
    """The class of that name here. LookupError: there is none."""
    found = _OWN.get((module, name)) or _at(module, name)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise LookupError(name)
    return found


def _at(module: str, name: str) -> Any:
    """What stands there in a module that is loaded, or None."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
