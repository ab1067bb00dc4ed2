"""Which columns of a row a Python function can look at: the others need not be made into Python objects.

Found in the function's bytecode. A function is known to read certain columns only where its first parameter
is a plain local variable that is used as `row.name` or `row["name"]` and in no other way. Else it may do
anything: hand the row on, compare or unpack it, show it to an inner function, to `locals()` or a debugger.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any

#: No function is known to read more columns: a row with slots (`_core/state/row_cursor`) has no room.
MOST_READ = 64
#: Names that can reach a local variable by another way than its own.
_WAYS_AROUND = {
    "locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "stack", "breakpoint", "set_trace",
}  # fmt: skip
_SINGLE = {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"}
#: What has another variable first, and then loads the row.
_DOUBLE = {"LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "STORE_FAST_LOAD_FAST"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_SUBSCRIPT = {("BINARY_SUBSCR", ""), ("BINARY_OP", "[]")}  # since 3.14 the second


def columns_read(fn: Callable[..., Any], names: Sequence[str]) -> frozenset[int] | None:
    """The columns that a function may look at.

    Parameters
    ----------
    fn : callable
        Its first argument is a row (`ordstream.ground.rows`). `hands_row_to`, if it has that: what looks at
        the row in its stead; `looks_at`: names of columns that it reads itself beside.
    names : sequence of str
        Of the columns.

    Returns
    -------
    frozenset of int, or None
        None: that is not known; all of them.
    """
    beside = getattr(fn, "looks_at", ())
    fn = getattr(fn, "hands_row_to", fn)
    first = 0
    if isinstance(fn, MethodType):
        fn, first = fn.__func__, 1
    if not isinstance(fn, FunctionType):
        return None
    code = fn.__code__
    if code.co_argcount <= first:
        return None
    found = _attributes(code, code.co_varnames[first])
    if found is None:
        return None
    found = found.union(beside)
    # names with two underscores have meanings of their own; a slot is an identifier
    if not found <= set(names) or any(one.startswith("__") or not one.isidentifier() for one in found):
        return None
    if len(found) > MOST_READ:
        return None
    return frozenset(i for i, name in enumerate(names) if name in found)


@lru_cache(maxsize=256)  # a plan asks often
def _attributes(code: CodeType, name: str) -> frozenset[str] | None:
    """The names that code reads of a local variable, as attributes or as constants in brackets; None where
    it does anything else with it.
    """
    if name in code.co_cellvars or _WAYS_AROUND & set(code.co_names):
        return None
    found: set[str] = set()
    loaded = False  # the last instruction left the variable on top of the stack
    constant: str | None = None  # the one before did, and the last one left this name there
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("EXTENDED_ARG", "CACHE"):
            continue
        if constant is not None:
            if (instruction.opname, instruction.argrepr) not in _SUBSCRIPT:
                return None
            found.add(constant)
            constant = None
        elif loaded and instruction.opname == "LOAD_CONST" and type(instruction.argval) is str:
            constant = instruction.argval
        elif loaded:
            if instruction.opname not in _ATTRIBUTE:
                return None
            found.add(str(instruction.argval))
        loaded = False
        if "FAST" not in instruction.opname:
            continue
        names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        if name not in names:
            continue
        single = instruction.opname in _SINGLE
        if not single and (instruction.opname not in _DOUBLE or names[0] == name):
            return None
        loaded = True
    return None if loaded or constant is not None else frozenset(found)
