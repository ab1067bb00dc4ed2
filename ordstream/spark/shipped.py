"""What a driver ships into the tasks, and the check that the worker's ordstream is the driver's.

A function object goes to a Python worker as its class's name and its state, so the worker runs it with
whatever `ordstream` it imports: another one where the worker's current folder or PYTHONPATH has one. What
would follow are wrong answers or an error far from its cause. So the object travels as bytes inside of a
small function, itself sent by value, that looks at the worker's ordstream before it unpacks them: once per
worker process. The same folder is the same ordstream; another one is if the version and every Python module
are.
"""

from __future__ import annotations

import functools
import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import cloudpickle

from ordstream.errors import PlanError, told, type_and_text

Origin = tuple[str, str, str]
"""Folder, version and digest of the modules of an ordstream."""


class NotSent(PlanError, pickle.PicklingError):
    """What a task needs can't be pickled. As a PicklingError it passes through PySpark, which prints the
    trace of any other exception that it meets there, and raises one of its own, which names no operator.
    """


class Shipped:
    """Base class of what runs in a task: pickled so that a worker with another ordstream than the driver's
    says so.

    Raises
    ------
    ImportError
        In the worker, on unpacking: it has no ordstream, another one, or one whose core is not built; or
        it lacks what the pipeline's functions refer to.
    """

    def __init_subclass__(cls, **given: Any) -> None:
        """What its call raises can be told to the driver."""
        super().__init_subclass__(**given)
        if "__call__" in cls.__dict__:
            cls.__call__ = _tellable(cls.__call__)  # type: ignore[method-assign]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its state in bytes, and what unpacks them. By cloudpickle only, as Spark's driver
        pickles.

        Raises
        ------
        NotSent
            In the driver: a function of the pipeline can't be pickled.
        """
        try:
            data: bytes = cloudpickle.dumps((type(self), self.__dict__))  # type: ignore[no-untyped-call]
        except NotSent:  # of what this holds
            raise
        except Exception as error:  # also what a __getstate__ or __reduce__ of the user's raises
            owner, cause = _unsendable(self) or ("the pipeline", error)
            raise NotSent(
                f"{owner} can't be sent to Spark's workers: {told(cause)}; its function refers to something "
                "that belongs to this process, such as a lock, a connection, an open file or the Spark "
                "session: have the function make it, at its first call, or use plain values in it"
            ) from error
        return _unpacker(), (origin(), data)


def _unsendable(shipped: Shipped) -> tuple[str, Exception] | None:
    """The first operator that alone can't be pickled, and why."""
    state = vars(shipped)
    for plan in (state.get("fragment"), getattr(state.get("pipeline"), "plan", None)):
        for operator in getattr(plan, "operators", ()):
            try:
                cloudpickle.dumps(operator)  # type: ignore[no-untyped-call]
            except Exception as error:
                return f"operator {operator.name!r}", error
    return None


def _tellable(call: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """A worker sends the trace of an exception as UTF-8. Where it holds a lone surrogate (in the text of a
    user's exception: the name of a file that is no UTF-8) PySpark 4.3 fails on the way, and the job waits
    for ever.
    """

    @functools.wraps(call)
    def run(self: Any, items: Iterable[Any]) -> Iterator[Any]:
        try:
            yield from call(self, items)
        except BaseException as error:
            if _is_utf8("".join(traceback.format_exception(error))):
                raise
            error.__cause__, error.__suppress_context__ = None, True
            if _is_utf8("".join(traceback.format_exception_only(error))):
                raise
            kind, text = type_and_text(error)
            raise RuntimeError(f"{kind}: {text}") from None

    return run


def _is_utf8(text: str) -> bool:
    return text == text.encode("utf-8", "replace").decode()


@functools.cache
def origin() -> Origin:
    """The ordstream of this process."""
    import ordstream

    folder = ordstream.__path__[0]
    return folder, ordstream.__version__, _digester()(folder)


def _digester() -> Callable[[str], str]:
    """The digest of the Python modules under a folder. A function of its own scope: it goes to the
    workers by value.
    """

    def digest(folder: str) -> str:
        import hashlib
        import pathlib

        found = hashlib.sha256()
        for file in sorted(pathlib.Path(folder).rglob("*.py")):
            text = file.read_bytes()
            found.update(f"{file.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
        return found.hexdigest()

    return digest


def _unpacker() -> Callable[[Origin, bytes], Any]:
    """What runs in the worker. Sent by value, so it uses nothing of ordstream that it has not looked at."""
    digest = _digester()

    def unpack(driver: Origin, data: bytes) -> Any:
        import importlib
        import importlib.util
        import os
        import pickle
        import sys

        folder, version, modules = driver
        here = sys.executable
        advice = (
            "A worker's current folder and PYTHONPATH come before the packages installed for its Python: "
            "start Spark in another folder, "
            f"or give the workers the driver's ordstream (PYSPARK_PYTHON names their Python, here {here})"
        )
        try:
            found = importlib.import_module("ordstream")
            place = found.__path__[0]
        except (ImportError, AttributeError) as error:
            text = (
                f"this Spark worker can't import ordstream ({error}); the driver has {version} in "
                f"{folder}. {advice}"
            )
            raise ImportError(text) from error
        if getattr(found, "_like_driver", None) != driver:
            own = getattr(found, "__version__", "of no version")
            if os.path.realpath(place) != os.path.realpath(folder) and (own, digest(place)) != (
                version,
                modules,
            ):
                raise ImportError(
                    f"this Spark worker imports another ordstream than the driver: {own} in {place}, the "
                    f"driver's is {version} in "
                    f"{folder}. {advice}"
                )
            if importlib.util.find_spec("ordstream._core.flow.run") is None:
                raise ImportError(
                    f"this Spark worker imports an ordstream whose core is not built: {own} in {place}. "
                    f"{advice}"
                )
            found._like_driver = driver  # type: ignore[attr-defined]
        try:
            kind, state = pickle.loads(data)
        except (ImportError, AttributeError) as error:
            raise ImportError(
                "this Spark worker can't find what the pipeline's functions refer to "
                f"({type(error).__name__}: {error}): define it in a module that workers can import (as "
                "SparkContext.addPyFile gives them one); a `type` statement of a script is not sent along"
            ) from error
        except MemoryError:
            raise
        except Exception as error:
            raise RuntimeError(
                "this Spark worker can't make an object that the pipeline's functions refer to: "
                f"{type(error).__name__}: {error}. Unpickling runs its __setstate__ or __reduce__ on each "
                "worker: what it opens must be there (SparkContext.addFile), or open it at the first call"
            ) from error
        made = kind.__new__(kind)
        made.__dict__.update(state)
        return made

    return unpack
