"""What is said to those who take a run, or what it gave, for a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

#: What others call the end of a stream, and waiting for it: who looks for these has no use for its rows.
_OF_A_STREAM = {
    **dict.fromkeys(
        ("stop", "shutdown", "terminate", "kill", "abort", "interrupt"),
        "it ends by close(), or from another thread by cancel()",
    ),
    **dict.fromkeys(
        ("wait", "join", "result", "awaitTermination", "await_termination", "run"),
        "it runs as its batches are read: a loop over it ends when it has ended",
    ),
    **dict.fromkeys(
        ("status", "stats", "metrics", "lastProgress", "last_progress", "recentProgress"),
        "progress says how far it is, report what it did",
    ),
}


class NoTable:
    """A name that a stream has not is answered with where its rows are; so is an output's, in a subclass."""

    _others_call: ClassVar[Mapping[str, str]] = _OF_A_STREAM

    def _rows_are(self) -> str:
        return "its rows are pyarrow.table(stream), .to_pandas(), pl.DataFrame(stream), or a loop over it"

    def __repr__(self) -> str:
        """With the columns, or the names of several outputs: as far as it is made."""
        made = vars(self)
        names: Any = made.get("schemas") or getattr(made.get("schema"), "names", ())
        return f"<ordstream.{type(self).__name__} of {', '.join(names)}>"

    if not TYPE_CHECKING:  # for a type checker these are mistakes

        def __getattr__(self, name: str) -> NoReturn:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            # Python, copies and libraries ask for names with an underscore, also of what is not made yet
            if not name.startswith("_"):
                text = f"{text}; {self._others_call.get(name) or self._rows_are()}"
            raise AttributeError(text, name=name, obj=self)


class NoArray:
    """pandas.DataFrame takes no Arrow data. It asks for an array, or makes one of names or of pairs."""

    def _rows_are(self) -> str:
        raise NotImplementedError

    if not TYPE_CHECKING:

        def __array__(self, *_: Any, **__: Any) -> NoReturn:
            kind = type(self).__name__
            text = f"{kind!r} is no array; pandas.DataFrame takes no Arrow data"
            raise TypeError(f"{text}: {self._rows_are()}")
