"""Compiled user functions: anything that is, or becomes, a C function `int64_t f(int64_t n, void* call,
void* user_data)`.

Two ways lead there. `resolve_callable` takes a function that is compiled already: a Numba cfunc, a
`scipy.LowLevelCallable`, a Cython capsule, a ctypes or cffi function pointer. `compile_rows` and
`compile_process` compile `fn(row, emit)` and `fn(row, state, emit)` with Numba (`pip install
'ordstream[jit]'`).

What `call` points to, and what the function returns, is documented in
`ordstream/include/ordstream_kernel.h`.
"""

from __future__ import annotations

import ctypes
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ordstream.errors import PlanError, shown
from ordstream.ground.types import to_storage
from ordstream.udf.compiled_function import CompiledFunction, state_dtype

SIGNATURE = "int64_t (int64_t, void *, void *)"
_C_FUNCTION = ctypes.CFUNCTYPE(None).__mro__[1]  # base class of every ctypes function
_WANTED = ("i8", "i8", "ptr", "ptr")  # result, arguments; i8: a signed integer of 8 bytes


@dataclass(frozen=True)
class NativeFunction:
    """A C function of the right signature.

    Attributes
    ----------
    address : int
    user_data : int
        Third argument of every call; 0: NULL.
    keep : tuple of object
        What owns the code and the user data; must outlive the last call.
    """

    address: int
    user_data: int = 0
    keep: tuple[Any, ...] = ()


# --------------------------------------------------------------------------------- native callables


def is_native(obj: Any) -> bool:
    """Whether `resolve_callable` knows this kind of object (it may still reject its signature)."""
    return _kind(obj) is not None


def resolve_callable(obj: Any) -> NativeFunction:
    """Address, user data and owner of a compiled function.

    Parameters
    ----------
    obj : Numba CFunc, scipy.LowLevelCallable, capsule, ctypes function or cffi function pointer
        Must have the signature ``int64_t (int64_t, void *, void *)``, must not raise, and should not take
        the GIL: a pointer to a Python callback (ctypes or cffi) looks like any other and is accepted; it
        works, and stops every worker while it runs. A Cython function must be declared ``noexcept nogil``:
        the names of its capsule does not say so in Cython 3.3, so it cannot be checked.

    Raises
    ------
    PlanError
        Another kind of object, another signature, or NULL.
    """
    kind = _kind(obj)
    if kind is None:
        hint = ""
        if callable(obj):
            hint = (
                "; a Python function is compiled by compiled=True, an @njit function is passed as it is to "
                "compiled=True"
            )
        raise PlanError(
            "a compiled function is needed (Numba cfunc, scipy.LowLevelCallable, capsule, ctypes or cffi "
            f"pointer), got {obj!r}{hint}"
        )
    address, user_data, signature, keep = _READERS[kind](obj)
    if signature != _WANTED:
        raise PlanError(f"{obj!r} has the signature {_spell(signature)}, needed is {SIGNATURE}")
    if not address:
        raise PlanError(f"{obj!r} is a NULL function pointer")
    return NativeFunction(address, user_data, keep)


def _kind(obj: Any) -> str | None:
    if isinstance(obj, tuple) and type(obj).__name__ == "LowLevelCallable":
        return "scipy"
    if type(obj).__name__ == "PyCapsule":
        return "capsule"
    if isinstance(obj, _C_FUNCTION):
        return "ctypes"
    cffi = sys.modules.get("_cffi_backend")
    if cffi is not None and isinstance(obj, cffi._CDataBase):
        return "cffi"
    numba = sys.modules.get("numba.core.ccallback")
    return "numba" if numba is not None and isinstance(obj, numba.CFunc) else None


def _read_scipy(obj: Any) -> tuple[int, int, tuple[str, ...], tuple[Any, ...]]:
    address, user_data, signature, _ = _read_capsule(tuple.__getitem__(obj, 0))
    return address, user_data, signature, (obj,)


def _read_capsule(obj: Any) -> tuple[int, int, tuple[str, ...], tuple[Any, ...]]:
    name = _capsule("PyCapsule_GetName", ctypes.c_char_p, obj)
    if name is None:
        raise PlanError("the capsule has no name, so its signature is not known")
    text = name.decode()
    address = _capsule("PyCapsule_GetPointer", ctypes.c_void_p, obj, name)
    user_data = _capsule("PyCapsule_GetContext", ctypes.c_void_p, obj)
    return address or 0, user_data or 0, _parse(text), (obj,)


def _capsule(function: str, result: Any, *args: Any) -> Any:
    prototype = ctypes.PYFUNCTYPE(result, ctypes.py_object, *([ctypes.c_char_p] * (len(args) - 1)))
    return prototype((function, ctypes.pythonapi))(*args)


def _read_ctypes(obj: Any) -> tuple[int, int, tuple[str, ...], tuple[Any, ...]]:
    if obj.argtypes is None:
        raise PlanError(
            f"{obj!r} has no argtypes; set restype = c_int64, argtypes = [c_int64, c_void_p, c_void_p]"
        )
    signature = tuple(map(_ctypes_class, (obj.restype, *obj.argtypes)))
    return ctypes.cast(obj, ctypes.c_void_p).value or 0, 0, signature, (obj,)


def _ctypes_class(type_: Any) -> str:
    if type_ is None:
        return "void"
    code = getattr(type_, "_type_", None)
    if type_ in (ctypes.c_void_p, ctypes.c_char_p) or not isinstance(code, str):
        return "ptr"
    if code in "fdg":
        return f"f{ctypes.sizeof(type_)}"
    return f"{'i' if code.islower() and code != 'c' else 'u'}{ctypes.sizeof(type_)}"


def _read_cffi(obj: Any) -> tuple[int, int, tuple[str, ...], tuple[Any, ...]]:
    backend = sys.modules["_cffi_backend"]
    type_ = backend.typeof(obj)
    if type_.kind != "function":
        raise PlanError(f"{obj!r} is not a function pointer")
    address = int(backend.cast(backend.new_primitive_type("uintptr_t"), obj))
    return address, 0, _parse(type_.cname), (obj,)


def _read_numba(obj: Any) -> tuple[int, int, tuple[str, ...], tuple[Any, ...]]:
    _, _, signature, _ = _read_ctypes(obj.ctypes)
    return int(obj.address), 0, signature, (obj,)


_READERS: dict[str, Callable[[Any], tuple[int, int, tuple[str, ...], tuple[Any, ...]]]] = {
    "scipy": _read_scipy,
    "capsule": _read_capsule,
    "ctypes": _read_ctypes,
    "cffi": _read_cffi,
    "numba": _read_numba,
}

_LONG = ctypes.sizeof(ctypes.c_long)
_C_CLASSES = {
    "void": "void",
    "char": "i1",
    "signed char": "i1",
    "unsigned char": "u1",
    "short": "i2",
    "unsigned short": "u2",
    "int": "i4",
    "unsigned int": "u4",
    "unsigned": "u4",
    "long": f"i{_LONG}",
    "unsigned long": f"u{_LONG}",
    "long int": f"i{_LONG}",
    "long long": "i8",
    "long long int": "i8",
    "unsigned long long": "u8",
    "int8_t": "i1",
    "int16_t": "i2",
    "int32_t": "i4",
    "int64_t": "i8",
    "uint8_t": "u1",
    "uint16_t": "u2",
    "uint32_t": "u4",
    "uint64_t": "u8",
    "npy_int64": "i8",
    "intptr_t": "i8",
    "ssize_t": "i8",
    "Py_ssize_t": "i8",
    "ptrdiff_t": "i8",
    "size_t": "u8",
    "float": "f4",
    "double": "f8",
}


def _parse(text: str) -> tuple[str, ...]:
    """Classes of a C signature such as ``int64_t (int64_t, void *, void *)``, as scipy, Cython and cffi
    spell it.
    """
    plain = re.sub(r"__pyx_t_\w*?_(?=[a-z])", "", text)
    plain = re.sub(r"\b(const|struct|noexcept|nogil)\b|\bexcept\b.*$|\(\s*\*\s*\)", " ", plain)
    match = re.fullmatch(r"\s*([^()]+?)\s*\(([^()]*)\)\s*", plain)
    if match is None:
        raise PlanError(f"the signature {text!r} can't be read, needed is {SIGNATURE}")
    arguments = [argument for argument in match[2].split(",") if argument.strip()]
    return tuple(_c_class(argument) for argument in (match[1], *arguments))


def _c_class(text: str) -> str:
    words = " ".join(text.split())
    return "ptr" if "*" in words else _C_CLASSES.get(words, words)


def _spell(signature: tuple[str, ...]) -> str:
    spelled = {"ptr": "void *", "void": "void", "f8": "double", "f4": "float"}
    spelled |= {f"{s}{n}": f"{'u' * (s == 'u')}int{8 * n}_t" for s in "iu" for n in (1, 2, 4, 8)}
    result, *arguments = (spelled.get(part, part) for part in signature)
    return f"{result} ({', '.join(arguments)})"


def native_function(
    native: NativeFunction, output: pa.Schema, fan_out: int, state: pa.Schema | None = None
) -> CompiledFunction:
    """A resolved function with the declarations that the kernel needs."""
    return CompiledFunction(
        plain=native.address,
        nulls=native.address,
        reads=(),
        may_be_null=tuple(column.nullable for column in output),
        fan_out=fan_out,
        state=None if state is None else state_dtype(state),
        user_data=native.user_data,
        keep=native.keep,
    )


# ------------------------------------------------------------------------------------------------ state


# ------------------------------------------------------------------------------------------------ Numba


def compile_rows(
    fn: Callable[..., Any],
    input_schema: pa.Schema,
    output_schema: pa.Schema,
    fan_out: int = 1,
    *,
    exact: bool = False,
    where: str = "compiled function",
) -> CompiledFunction:
    """Compile `fn(row, emit)`, a stateless function, to a kernel.

    Inside, `row.x` is an int, float, bool, string or list of the column `x`: dates and times are the int of
    their unit; integers are 64-bit with a sign and wrap around (a row with a uint64 from 2**63 on is given
    to the interpreted function, which is exact and slower); a nullable column is None where it is null.
    Strings support ``==``, ``!=``, ``len`` and being emitted; lists of numbers ``len``, indexing and being
    emitted. `emit` takes one value per column of `output_schema`. Global variables and closures are
    constants.

    Parameters
    ----------
    fn : function or Numba dispatcher
        Of a dispatcher the Python function is taken; its own options do not apply.
    input_schema, output_schema : pyarrow.Schema
    fan_out : int
        Most emits per row; one more is a failure of that row.
    exact : bool
        Every row must emit exactly `fan_out` times.
    where : str
        Name of the operator, for error texts.

    Raises
    ------
    ImportError
        Numba is not installed.
    PlanError
        The function does not compile; the text names its line.
    """
    return _compile(fn, input_schema, None, output_schema, fan_out, exact, where)


def compile_process(
    fn: Callable[..., Any],
    input_schema: pa.Schema,
    state_schema: pa.Schema,
    output_schema: pa.Schema,
    fan_out: int = 1,
    *,
    where: str = "compiled function",
) -> CompiledFunction:
    """Compile `fn(row, state, emit)`: as `compile_rows`, with the state of the row's key.

    `state.x` reads and writes a declared field (numbers, bools, dates and times as ints); all are 0 for a
    new key. What a failing row wrote to its state is taken back.
    """
    return _compile(fn, input_schema, state_schema, output_schema, fan_out, False, where)


def python_function(fn: Any) -> Any:
    """The Python function of a Numba dispatcher; other functions as they are."""
    return getattr(fn, "py_func", fn)


def interpret(
    fn: Callable[..., Any], output: pa.Schema, fan_out: int, exact: bool, row: Any, state: Any = None
) -> list[tuple[Any, ...]]:
    """Run the Python function behind a compiled one on one row, with the rules of `run_serial`.

    Returns
    -------
    list of tuple
        What it emitted, as storage values.

    Raises
    ------
    Whatever the function raises, and what its outputs' misfits raise.
    """
    emitted: list[tuple[Any, ...]] = []

    def emit(*values: Any) -> None:
        if len(emitted) == fan_out:
            raise ValueError(f"more than {fan_out} outputs for one tuple; declare a larger fan_out")
        if len(values) != len(output):
            raise ValueError(
                f"expected {len(output)} values ({', '.join(output.names)}), got {len(values)}: "
                f"{shown(values)}"
            )
        for value, column in zip(values, output, strict=True):
            if value is None and not column.nullable:
                raise ValueError(f"column {column.name!r} is declared without nulls, got None")
        fitting = (to_storage(v, c.type, c.name, counts=True) for v, c in zip(values, output, strict=True))
        emitted.append(tuple(fitting))

    if state is None:
        fn(row, emit)
    else:
        fn(row, state, emit)
    if exact and len(emitted) != fan_out:
        raise ValueError("a compiled map must emit exactly once per tuple; use flat_map")
    return emitted


#: Compiled functions by what went into them; the newest are kept.
_CACHE: dict[Any, tuple[CompiledFunction, tuple[Any, ...]]] = {}
_CACHE_SIZE = 64


def _compile(
    fn: Any,
    rows: pa.Schema,
    state: pa.Schema | None,
    outputs: pa.Schema,
    fan_out: int,
    exact: bool,
    where: str,
) -> CompiledFunction:
    source = python_function(fn)
    if not inspect.isfunction(source):
        raise PlanError(f"{where}: a Python function or an @njit function is needed to compile, got {fn!r}")
    _check_parameters(source, 2 if state is None else 3, where)
    constants = _constants(source)
    key = (
        source,
        tuple(map(id, constants)),
        rows.serialize().to_pybytes(),
        outputs.serialize().to_pybytes(),
        None if state is None else state.serialize().to_pybytes(),
        fan_out,
        exact,
    )
    if key in _CACHE:
        return _CACHE[key][0]
    try:
        from ordstream.udf import numba_compiler as udf_numba
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("numba", "llvmlite"):
            raise
        raise ImportError(
            "compiled=True needs Numba: pip install 'ordstream[jit]' (or: pip install numba)"
        ) from error
    compiled = udf_numba.compile_function(source, rows, state, outputs, fan_out, exact, where)
    while len(_CACHE) >= _CACHE_SIZE:
        del _CACHE[next(iter(_CACHE))]
    _CACHE[key] = (compiled, constants)
    return compiled


def _check_parameters(fn: Any, needed: int, where: str) -> None:
    """PlanError unless the function can be called with (row, emit) or (row, state, emit)."""
    try:
        inspect.signature(fn).bind(*range(needed))
    except TypeError as error:
        wanted = "row, emit" if needed == 2 else "row, state, emit"
        raise PlanError(
            f"{where}: a compiled function takes ({wanted}), got {fn.__name__}{inspect.signature(fn)}"
        ) from error


def _constants(fn: Any) -> tuple[Any, ...]:
    """The objects that a function finds outside itself: they are frozen when it is compiled."""
    cells = [cell.cell_contents for cell in fn.__closure__ or () if _has_contents(cell)]
    return (*cells, *(fn.__globals__[name] for name in fn.__code__.co_names if name in fn.__globals__))


def _has_contents(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
