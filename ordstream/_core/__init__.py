"""The core's gateway: Python code outside this package imports the compiled modules through here and nowhere deeper.

In the order in which a tuple meets them: arrow (import), ingress, operator (with split, assemble and the worklists and reorder
buffers that are inlined into it), kernel and the kernels, egress, arrow (export); beside them scheduler and runtime. Input is
checked before it gets here: ordstream/pipeline.py, settings.py, source.py.
"""

from typing import Any


def debug_counts() -> dict[str, int]:
    """Live core objects of a debug build (`make debug`), {} in a release build; all zero when every stream is closed."""
    from ordstream._core import run

    counts: dict[str, int] = run.debug_counts()
    return counts


def __getattr__(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(
            f"ordstream's core has no compiled module {name!r}; in a checkout, build it with: make develop"
        ) from error
