"""One shared-memory machine: a plan runs on its cores, in order. `run` collects all output, `stream`
yields it as it is ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordstream.node.node import Stream, run, stream
    from ordstream.node.result import Result

__all__ = ["Result", "Stream", "run", "stream"]


if not TYPE_CHECKING:  # else a type checker would take any name for right

    def __getattr__(name):
        """The names above, when they are first used: they load the compiled core, which settings and reports
        need not.
        """
        if name not in __all__:
            raise AttributeError(f"module 'ordstream.node' has no attribute {name!r}")
        from ordstream.node import node, result

        return result.Result if name == "Result" else getattr(node, name)
