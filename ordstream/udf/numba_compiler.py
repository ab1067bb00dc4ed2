"""Numba behind `compile_rows` and `compile_process`: a user function becomes one C function.

Its contract is `include/ordstream_kernel.h`. The loop over the rows is generated; the user function is
inlined into it.
"""
# mypy: disable-error-code="attr-defined,misc,no-untyped-call,no-untyped-def,untyped-decorator"

from __future__ import annotations

from typing import Any

import llvmlite.ir as ll
import numba
import pyarrow as pa
from numba import types
from numba.core import cgutils, errors, ir
from numba.extending import intrinsic

from ordstream._core.kernels.compiled import CALL_OFFSETS
from ordstream.errors import PlanError
from ordstream.ground.types import is_string, physical_type
from ordstream.udf.compiled_function import CompiledFunction, compile_error, state_dtype
from ordstream.udf.numba_types import (
    BYTES,
    I64,
    INT32S,
    EmitType,
    RowType,
    Slot,
    StateType,
    Usage,
    converts,
    plain,
)


def _field(builder: Any, call: Any, name: str, type_: Any) -> Any:
    pointer = builder.gep(call, [I64(CALL_OFFSETS[name])])
    return builder.bitcast(pointer, type_.as_pointer())


def _columns(builder: Any, struct: Any, count: int, base: Any) -> None:
    """Load the {data, valid} pointers of a column array into the members of a row or emit value."""
    pairs = builder.bitcast(base, BYTES.as_pointer())
    for i in range(count):
        setattr(struct, f"data{i}", builder.load(builder.gep(pairs, [I64(2 * i)])))
        setattr(struct, f"valid{i}", builder.load(builder.gep(pairs, [I64(2 * i + 1)])))


def _loop(
    user: Any, row: RowType, state: StateType | None, emit: EmitType, size: int, fan_out: int, exact: bool
) -> Any:
    """The loop over the rows of a call, as an intrinsic `run(n, call) -> int64` with the result that the
    header asks for.

    It is written in LLVM because Numba's try/except would treble the compilation: here an error is a status
    that the user function returns. Before each row the state record is copied aside (a few vector moves), so
    that a failing row can be undone.

    Parameters
    ----------
    user : CompileResult
        The user function for (row, emit) or (row, state, emit).
    size : int
        Bytes of a state.
    """

    @intrinsic
    def run(typing: Any, n: Any, call: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            n, call = args
            context.active_code_library.add_linking_library(user.library)
            rows = builder.load(_field(builder, call, "rows", INT32S))
            source = cgutils.create_struct_proxy(row)(context, builder)
            _columns(builder, source, len(row.slots), builder.load(_field(builder, call, "columns", BYTES)))
            sink = cgutils.create_struct_proxy(emit)(context, builder)
            for name in ("count", "limit", "slot"):
                setattr(sink, name, cgutils.alloca_once_value(builder, I64(0)))
            sink.origin = builder.load(_field(builder, call, "origin", INT32S))
            _columns(builder, sink, len(emit.slots), builder.load(_field(builder, call, "out", BYTES)))
            record = before = None
            if state is not None:
                base = builder.load(_field(builder, call, "states", BYTES))
                stride = builder.load(_field(builder, call, "state_stride", I64))
                records = builder.load(_field(builder, call, "records", INT32S))
                before = builder.bitcast(cgutils.alloca_once(builder, ll.ArrayType(I64, size // 8)), BYTES)
            result = cgutils.alloca_once_value(builder, n)
            with cgutils.for_range(builder, n) as loop:
                k = loop.index
                source.slot = builder.sext(builder.load(builder.gep(rows, [k])), I64)
                start = builder.load(sink.count)
                builder.store(source.slot, sink.slot)
                builder.store(builder.add(start, I64(fan_out)), sink.limit)
                values = [source._getvalue(), sink._getvalue()]
                if state is not None:
                    index = builder.sext(builder.load(builder.gep(records, [k])), I64)
                    record = builder.gep(base, [builder.mul(index, stride)])
                    cgutils.raw_memcpy(builder, before, record, I64(size // 8), 8, align=8)
                    values.insert(1, record)
                status, _ = context.call_internal_no_propagate(builder, user.fndesc, user.signature, values)
                order = "!=" if exact else ">"
                miscounted = builder.icmp_signed(order, builder.load(sink.count), builder.load(sink.limit))
                with builder.if_then(builder.or_(status.is_error, miscounted), likely=False):
                    if state is not None:
                        cgutils.raw_memcpy(builder, record, before, I64(size // 8), 8, align=8)
                    builder.store(start, sink.count)
                    builder.store(builder.sub(I64(-1), k), result)
                    loop.do_break()
            builder.store(builder.load(sink.count), _field(builder, call, "n_out", I64))
            return builder.load(result)

        return types.int64(types.int64, types.voidptr), generate

    return run


def compile_function(
    fn: Any,
    rows: pa.Schema,
    state: pa.Schema | None,
    outputs: pa.Schema,
    fan_out: int,
    exact: bool,
    where: str,
) -> CompiledFunction:
    """See `ordstream.udf.functions.compile_rows` and `compile_process`."""
    dtype = None if state is None else state_dtype(state, where)
    inputs = [_slot(column) for column in rows]
    usage = Usage()
    nullable = any(column.nullable for column in rows)
    nulls = _variant(fn, inputs, nullable, state, dtype, outputs, usage, fan_out, exact, where)
    reads = tuple(i for i, slot in enumerate(inputs) if slot.nullable and slot.name in usage.read)
    plain = nulls
    if reads:
        plain = _variant(fn, inputs, False, state, dtype, outputs, usage, fan_out, exact, where)
    return CompiledFunction(
        plain=plain.address,
        nulls=nulls.address,
        reads=reads,
        may_be_null=tuple(i in usage.may_be_null for i in range(len(outputs))),
        fan_out=fan_out,
        state=dtype,
        interpreted=fn,
        keep=(plain, nulls),
    )


def _slot(column: pa.Field, offset: int = 0) -> Slot:
    return Slot(
        column.name, physical_type(column.type, column.name), column.nullable, is_string(column.type), offset
    )


def _variant(
    fn: Any,
    inputs: list[Slot],
    checks_nulls: bool,
    state: pa.Schema | None,
    dtype: Any,
    outputs: pa.Schema,
    usage: Usage,
    fan_out: int,
    exact: bool,
    where: str,
) -> Any:
    """Compile the user function alone (its errors are then about it), then the loop around it."""
    row, emit = RowType(inputs, checks_nulls, usage), EmitType([_slot(column) for column in outputs], usage)
    record = None
    if state is not None:
        record = StateType([_slot(column, dtype.fields[column.name][1]) for column in state])
    # an index beyond an array would read any memory
    user = numba.njit(fn, error_model="python", boundscheck=True, nogil=True, forceinline=True)
    arguments = (row, emit) if record is None else (row, record, emit)
    try:
        user.compile(arguments)
    except errors.NumbaError as error:
        raise compile_error(fn, error, where) from error
    compiled = user.overloads[arguments]
    _check_result(fn, compiled, record, where)
    run = _loop(compiled, row, record, emit, 0 if dtype is None else dtype.itemsize, fan_out, exact)

    def kernel(n: Any, call: Any, user_data: Any) -> Any:
        return run(n, call)

    return numba.cfunc(types.int64(types.int64, types.voidptr, types.voidptr))(kernel)


def _check_result(fn: Any, compiled: Any, record: StateType | None, where: str) -> None:
    """What type inference allows and the interpreted function would not do."""
    if compiled.signature.return_type != types.none:
        raise PlanError(
            f"{where}: {fn.__name__} returns {compiled.signature.return_type}; a compiled function emits "
            "its outputs"
        )
    annotation = compiled.type_annotation
    for block in annotation.blocks.values():
        for statement in block.body:
            if not isinstance(statement, ir.SetAttr) or annotation.typemap[statement.target.name] != record:
                continue
            given = annotation.typemap[statement.value.name]
            wanted = record.slots[statement.attr].value if record is not None else None
            if not converts(compiled.target_context.typing_context, plain(given), wanted):
                error = errors.TypingError(
                    f"state.{statement.attr} takes {wanted}, got {given}", loc=statement.loc
                )
                raise compile_error(fn, error, where)
