"""Numba types behind `compile_rows` and `compile_process`: a lazy row, a state record, `emit`, strings and lists as views.

A user function becomes one C function with the contract of `include/ordstream_kernel.h`. The generated loop calls it
row by row; the user function is inlined. Values are 64 bits wide inside: an int8 column reads as int64 and an int64
written to an int8 column is range-checked, so that arithmetic is what the interpreted function does (up to 64 bits).
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import llvmlite.ir as ll
import numba
import pyarrow as pa
from numba import types
from numba.core import cgutils, errors, ir
from numba.core.typeconv import Conversion
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import (
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    lower_setattr_generic,
    models,
    overload,
    register_model,
)

from ordstream._core.kernels_compiled import CALL_OFFSETS
from ordstream.errors import PlanError
from ordstream.types import is_string, physical_type
from ordstream.udf import CompiledFunction, compile_error, state_dtype

_serial = itertools.count()
_I8 = ll.IntType(8)
_I64 = ll.IntType(64)
_BYTES = _I8.as_pointer()
_INT32S = ll.IntType(32).as_pointer()

#: Physical class -> (type in memory, type inside a compiled function).
NUMBERS: dict[str, tuple[Any, Any]] = {
    "i8": (types.int8, types.int64),
    "i16": (types.int16, types.int64),
    "i32": (types.int32, types.int64),
    "i64": (types.int64, types.int64),
    "u8": (types.uint8, types.int64),
    "u16": (types.uint16, types.int64),
    "u32": (types.uint32, types.int64),
    "u64": (types.uint64, types.int64),
    "f32": (types.float32, types.float64),
    "f64": (types.float64, types.float64),
    "bool": (types.uint8, types.boolean),
}


# ------------------------------------------------------------------------------------------------ values of a column


class Slot:
    """How one column or state field is stored, and what it is inside a compiled function.

    Parameters
    ----------
    name : str
    physical : ordstream.types.Physical
    nullable : bool
    text : bool
        A view is utf8 (its `len` counts characters), not binary.
    offset : int
        State fields: bytes from the start of the record.
    """

    def __init__(self, name: str, physical: Any, nullable: bool = False, text: bool = False, offset: int = 0) -> None:
        self.name = name
        self.nullable = nullable
        self.offset = offset
        self.code = physical.name
        self.low, self.high = 0, 0
        if self.code in NUMBERS:
            self.memory, self.value = NUMBERS[self.code]
            if isinstance(self.memory, types.Integer) and self.code != "bool":
                self.low, self.high = self.memory.minval, min(self.memory.maxval, types.int64.maxval)
        elif self.code == "view":
            self.memory = self.value = ViewType("text" if text else "binary", None)
        elif self.code == "list":
            self.memory = self.value = ViewType("list", Slot(name, physical.element))
        else:
            self.memory = self.value = ViewType("fixed16", None)

    def load(self, context: Any, builder: Any, pointer: Any) -> Any:
        """LLVM value of type `self.value`, from an i8* into memory."""
        memory = context.get_value_type(self.memory)
        raw = builder.load(builder.bitcast(pointer, memory.as_pointer()), align=1 if self.code == "fixed16" else None)
        if self.code == "bool":
            return builder.icmp_unsigned("!=", raw, raw.type(0))
        if self.code == "f32":
            return builder.fpext(raw, ll.DoubleType())
        if self.code == "u64":
            text = f"{self.name!r}: a uint64 above the int64 range in a compiled function"
            _raise_if(context, builder, builder.icmp_signed("<", raw, raw.type(0)), text)
            return raw
        if self.code in NUMBERS and self.memory.bitwidth < 64:
            return (builder.sext if self.memory.signed else builder.zext)(raw, _I64)
        return raw

    def store(self, context: Any, builder: Any, value: Any, pointer: Any) -> None:
        """Write an LLVM value of type `self.value`; out of range for a narrower integer raises OverflowError."""
        if self.code == "bool":
            value = builder.zext(value, _I8) if value.type.width < 8 else value
        elif self.code == "f32":
            value = builder.fptrunc(value, ll.FloatType())
        elif self.code in NUMBERS and (self.low, self.high) != (types.int64.minval, types.int64.maxval) and self.high:
            below = builder.icmp_signed("<", value, _I64(self.low))
            above = builder.icmp_signed(">", value, _I64(self.high))
            _raise_if(context, builder, builder.or_(below, above), f"{self.name!r} is out of range for {self.memory}")
            if self.memory.bitwidth < 64:
                value = builder.trunc(value, ll.IntType(self.memory.bitwidth))
        builder.store(value, builder.bitcast(pointer, value.type.as_pointer()))

    @property
    def width(self) -> int:
        """Bytes per value."""
        return int(self.memory.bitwidth // 8) if self.code in NUMBERS else 16


def _raise_if(context: Any, builder: Any, condition: Any, text: str) -> None:
    with builder.if_then(condition, likely=False):
        context.call_conv.return_user_exc(builder, OverflowError, (text,))


class ViewType(types.Type):  # type: ignore[misc]
    """Bytes or list elements that lie elsewhere: {data, size}. Decimals (16 opaque bytes) take the same shape."""

    def __init__(self, kind: str, element: Slot | None) -> None:
        self.kind = kind
        self.element = element
        super().__init__(name=f"ordstream.{kind}{'' if element is None else f'({element.code})'}")


@register_model(ViewType)
class ViewModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, front: Any) -> None:
        super().__init__(manager, front, [("data", types.CPointer(types.uint8)), ("size", types.int64)])


def _plain(type_: Any) -> Any:
    """The type without Optional."""
    return type_.type if isinstance(type_, types.Optional) else type_


@intrinsic
def _count_characters(typing: Any, view: Any) -> Any:
    """len() of a view: characters of utf8, bytes of binary, elements of a list. None raises TypeError (by conversion)."""
    view = _plain(view)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data, size = (builder.extract_value(args[0], i) for i in (0, 1))
        if view.kind != "text":
            return size
        count = cgutils.alloca_once_value(builder, _I64(0))
        with cgutils.for_range(builder, size) as loop:
            byte = builder.load(builder.gep(data, [loop.index]))
            starts = builder.icmp_unsigned("!=", builder.and_(byte, _I8(0xC0)), _I8(0x80))
            builder.store(builder.add(builder.load(count), builder.zext(starts, _I64)), count)
        return builder.load(count)

    return types.int64(view), generate


@overload(len)
def _view_len(view):  # type: ignore[no-untyped-def]  # Numba compares this signature with the lambda's
    plain = _plain(view)
    if isinstance(plain, ViewType) and plain.kind != "fixed16":
        return lambda view: _count_characters(view)
    return None


@infer_global(operator.getitem)
class ViewGetItem(AbstractTemplate):  # type: ignore[misc]
    """An element of a list column; a negative or too large index raises IndexError."""

    def generic(self, args: Any, kws: Any) -> Any:
        view, index = _plain(args[0]), args[1]
        if isinstance(view, ViewType) and view.kind == "list" and isinstance(index, types.Integer):
            return signature(view.element.value, view, types.int64)
        return None


@lower_builtin(operator.getitem, ViewType, types.int64)
def _view_getitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    data, size = (builder.extract_value(args[0], i) for i in (0, 1))
    index = builder.select(builder.icmp_signed("<", args[1], _I64(0)), builder.add(args[1], size), args[1])
    with builder.if_then(builder.icmp_unsigned(">=", index, size), likely=False):
        context.call_conv.return_user_exc(builder, IndexError, ("list index out of range",))
    element = sig.args[0].element
    return element.load(context, builder, builder.gep(data, [builder.mul(index, _I64(element.width))]))


def _bytes_of(context: Any, builder: Any, type_: Any, value: Any) -> tuple[Any, Any]:
    """(data, size) of a view or of a string constant."""
    if isinstance(type_, types.StringLiteral):
        encoded = type_.literal_value.encode()
        return context.insert_const_string(builder.module, type_.literal_value), _I64(len(encoded))
    return builder.extract_value(value, 0), builder.extract_value(value, 1)


def _is_text(type_: Any) -> bool:
    return isinstance(type_, types.StringLiteral) or (isinstance(type_, ViewType) and type_.kind in ("text", "binary"))


def _compares(left: Any, right: Any) -> bool:
    plain = [_plain(left), _plain(right)]
    return all(map(_is_text, plain)) and any(isinstance(side, ViewType) for side in plain)


@intrinsic(prefer_literal=True)
def _views_equal(typing: Any, left: Any, right: Any) -> Any:
    """Equal byte by byte. None equals nothing."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        sides, valid = [], cgutils.true_bit
        for type_, value in zip(sig.args, args, strict=True):
            if isinstance(type_, types.Optional):
                helper = context.make_helper(builder, type_, value=value)
                valid = builder.and_(valid, helper.valid)
                type_, value = type_.type, helper.data
            sides.append(_bytes_of(context, builder, type_, value))
        (a, n), (b, m) = sides
        result = cgutils.alloca_once_value(builder, cgutils.false_bit)
        with builder.if_then(builder.and_(valid, builder.icmp_signed("==", n, m))):
            kind = ll.FunctionType(ll.IntType(32), [_BYTES, _BYTES, _I64])
            memcmp = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
            builder.store(builder.icmp_signed("==", builder.call(memcmp, [a, b, n]), ll.IntType(32)(0)), result)
        return builder.load(result)

    return (types.boolean(left, right), generate) if _compares(left, right) else None


# target="cpu": before Numba's own, which says that an optional string of ours and a str constant differ.
@overload(operator.eq, prefer_literal=True, target="cpu")
def _view_eq(left, right):  # type: ignore[no-untyped-def]
    return (lambda left, right: _views_equal(left, right)) if _compares(left, right) else None


@overload(operator.ne, prefer_literal=True, target="cpu")
def _view_ne(left, right):  # type: ignore[no-untyped-def]
    return (lambda left, right: not _views_equal(left, right)) if _compares(left, right) else None


# ------------------------------------------------------------------------------------------------ row, state, emit


class Usage:
    """What the compiler saw a function do. Attributes: read (column names), may_be_null (output column indexes)."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.may_be_null: set[int] = set()


class RowType(types.Type):  # type: ignore[misc]
    """The input row: its slot and the column pointers. An attribute is one load.

    Parameters
    ----------
    slots : sequence of Slot
    checks_nulls : bool
        Nullable columns are Optional; else the chunk has no nulls in them.
    usage : Usage
    """

    def __init__(self, slots: Any, checks_nulls: bool, usage: Usage) -> None:
        self.slots = tuple(slots)
        self.checks_nulls = checks_nulls
        self.usage = usage
        super().__init__(name=f"row({', '.join(slot.name for slot in slots)})#{next(_serial)}")

    def find(self, name: str) -> tuple[int, Slot] | None:
        """Index and slot of a column."""
        return next(((i, slot) for i, slot in enumerate(self.slots) if slot.name == name), None)


@register_model(RowType)
class RowModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, front: RowType) -> None:
        members = [("slot", types.int64)]
        for i in range(len(front.slots)):
            members += [(f"data{i}", types.CPointer(types.uint8)), (f"valid{i}", types.CPointer(types.uint8))]
        super().__init__(manager, front, members)


@infer_getattr
class RowAttribute(AttributeTemplate):  # type: ignore[misc]
    key = RowType

    def generic_resolve(self, row: RowType, name: str) -> Any:
        found = row.find(name)
        if found is None:
            return None
        row.usage.read.add(name)
        slot = found[1]
        return types.Optional(slot.value) if slot.nullable and row.checks_nulls else slot.value


@lower_getattr_generic(RowType)
def _row_getattr(context: Any, builder: Any, row: RowType, value: Any, name: str) -> Any:
    found = row.find(name)
    assert found is not None
    i, slot = found
    struct = cgutils.create_struct_proxy(row)(context, builder, value=value)
    pointer = builder.gep(getattr(struct, f"data{i}"), [builder.mul(struct.slot, _I64(slot.width))])
    if not (slot.nullable and row.checks_nulls):
        return slot.load(context, builder, pointer)
    valid = getattr(struct, f"valid{i}")
    is_valid = cgutils.alloca_once_value(builder, cgutils.true_bit)
    with builder.if_then(cgutils.is_not_null(builder, valid), likely=True):
        builder.store(builder.icmp_unsigned("!=", builder.load(builder.gep(valid, [struct.slot])), _I8(0)), is_valid)
    helper = context.make_helper(builder, types.Optional(slot.value))
    helper.valid = builder.load(is_valid)
    helper.data = cgutils.get_null_value(context.get_value_type(slot.value))
    content = cgutils.alloca_once_value(builder, helper.data)
    with builder.if_then(helper.valid, likely=True):
        builder.store(slot.load(context, builder, pointer), content)
    helper.data = builder.load(content)
    return helper._getvalue()


class StateType(types.Type):  # type: ignore[misc]
    """The state record of the row's key: a pointer. Attributes are readable and writable."""

    def __init__(self, slots: Any) -> None:
        self.slots = {slot.name: slot for slot in slots}
        super().__init__(name=f"state({', '.join(self.slots)})#{next(_serial)}")


@register_model(StateType)
class StateModel(models.OpaqueModel):  # type: ignore[misc]
    """An i8*."""


@infer_getattr
class StateAttribute(AttributeTemplate):  # type: ignore[misc]
    key = StateType

    def generic_resolve(self, state: StateType, name: str) -> Any:
        slot = state.slots.get(name)
        return None if slot is None else slot.value


@lower_getattr_generic(StateType)
def _state_getattr(context: Any, builder: Any, state: StateType, value: Any, name: str) -> Any:
    slot = state.slots[name]
    return slot.load(context, builder, builder.gep(value, [_I64(slot.offset)]))


@lower_setattr_generic(StateType)
def _state_setattr(context: Any, builder: Any, sig: Any, args: Any, name: str) -> None:
    slot = sig.args[0].slots[name]
    slot.store(context, builder, args[1], builder.gep(args[0], [_I64(slot.offset)]))


class EmitType(types.Callable):  # type: ignore[misc]
    """`emit(value, ...)`: one output row. Stores nothing once the row's fan-out is used up (the loop then fails the row)."""

    def __init__(self, slots: Any, usage: Usage) -> None:
        self.slots = tuple(slots)
        self.usage = usage
        super().__init__(f"emit#{next(_serial)}")

    @property
    def key(self) -> Any:
        return self.name

    def get_call_signatures(self) -> Any:
        return (), True

    def get_impl_key(self, sig: Any) -> Any:
        return EmitType

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        names = ", ".join(slot.name for slot in self.slots)
        if kws:
            raise errors.TypingError("emit takes its values in the order of the schema, without names")
        if len(args) != len(self.slots):
            raise errors.TypingError(f"emit takes {len(self.slots)} values ({names}), got {len(args)}")
        given = [self._argument(context, i, slot, arg) for i, (slot, arg) in enumerate(zip(self.slots, args, strict=True))]
        return signature(types.none, *given, recvr=self)

    def _argument(self, context: Any, index: int, slot: Slot, arg: Any) -> Any:
        """Type to which an argument is converted; TypingError where that would lose something."""
        if isinstance(arg, types.StringLiteral) and isinstance(slot.value, ViewType) and _is_text(slot.value):
            return arg
        arg = types.unliteral(arg)
        optional = isinstance(arg, types.Optional)
        if isinstance(arg, types.NoneType) or optional:
            if not slot.nullable:
                raise errors.TypingError(f"emit: column {slot.name!r} is not nullable, got {arg}")
            self.usage.may_be_null.add(index)
        if isinstance(arg, types.NoneType):
            return arg
        if not converts(context, _plain(arg), slot.value):
            raise errors.TypingError(f"emit: column {slot.name!r} takes {slot.value}, got {arg}")
        return types.Optional(slot.value) if optional else slot.value


def converts(context: Any, given: Any, wanted: Any) -> bool:
    """Whether a value may be stored as `wanted`: as `ordstream.types.to_storage`, no bool to number, no float to int."""
    given = types.unliteral(given)
    if isinstance(given, ViewType) or isinstance(wanted, ViewType):
        return given == wanted or (
            isinstance(given, ViewType) and isinstance(wanted, ViewType)
            and given.kind == wanted.kind == "list" and given.element.code == wanted.element.code
        )
    if (given == types.boolean) != (wanted == types.boolean):
        return False
    conversion = context.can_convert(given, wanted)
    return conversion is not None and int(conversion) <= int(Conversion.safe)


@register_model(EmitType)
class EmitModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, front: EmitType) -> None:
        pointer = types.CPointer(types.int64)
        members = [("count", pointer), ("limit", pointer), ("slot", pointer), ("origin", types.CPointer(types.int32))]
        for i in range(len(front.slots)):
            members += [(f"data{i}", types.CPointer(types.uint8)), (f"valid{i}", types.CPointer(types.uint8))]
        super().__init__(manager, front, members)


@lower_builtin(EmitType, EmitType, types.VarArg(types.Any))
def _emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    type_ = sig.args[0]
    emit = cgutils.create_struct_proxy(type_)(context, builder, value=args[0])
    n = builder.load(emit.count)
    with builder.if_then(builder.icmp_signed("<", n, builder.load(emit.limit)), likely=True):
        for i, (slot, value, given) in enumerate(zip(type_.slots, args[1:], sig.args[1:], strict=True)):
            pointer = builder.gep(getattr(emit, f"data{i}"), [builder.mul(n, _I64(slot.width))])
            valid = builder.gep(getattr(emit, f"valid{i}"), [n])
            if isinstance(given, types.NoneType):
                builder.store(_I8(0), valid)
                value = cgutils.get_null_value(context.get_value_type(slot.value))
            elif isinstance(given, types.Optional):
                helper = context.make_helper(builder, given, value=value)
                builder.store(builder.zext(helper.valid, _I8), valid)
                zero = cgutils.get_null_value(context.get_value_type(slot.value))
                value = builder.select(helper.valid, helper.data, zero)
            elif isinstance(given, types.StringLiteral):
                data, size = _bytes_of(context, builder, given, value)
                view = cgutils.create_struct_proxy(slot.value)(context, builder)
                view.data, view.size = data, size
                value = view._getvalue()
            slot.store(context, builder, value, pointer)
        origin = builder.trunc(builder.load(emit.slot), ll.IntType(32))
        builder.store(origin, builder.gep(emit.origin, [n]))
    builder.store(builder.add(n, _I64(1)), emit.count)
    return context.get_dummy_value()


# ------------------------------------------------------------------------------------------------ parts of the loop


def _field(builder: Any, call: Any, name: str, type_: Any) -> Any:
    pointer = builder.gep(call, [_I64(CALL_OFFSETS[name])])
    return builder.bitcast(pointer, type_.as_pointer())


def _columns(builder: Any, struct: Any, count: int, base: Any) -> None:
    """Load the {data, valid} pointers of a column array into the members of a row or emit value."""
    pairs = builder.bitcast(base, _BYTES.as_pointer())
    for i in range(count):
        setattr(struct, f"data{i}", builder.load(builder.gep(pairs, [_I64(2 * i)])))
        setattr(struct, f"valid{i}", builder.load(builder.gep(pairs, [_I64(2 * i + 1)])))


def _loop(user: Any, row: RowType, state: StateType | None, emit: EmitType, size: int, fan_out: int, exact: bool) -> Any:
    """The loop over the rows of a call, as an intrinsic `run(n, call) -> int64` with the result that the header asks for.

    It is written in LLVM because Numba's try/except would treble the compilation: here an error is a status that the
    user function returns. Before each row the state record is copied aside (a few vector moves), so that a failing
    row can be undone.

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
            rows = builder.load(_field(builder, call, "rows", _INT32S))
            source = cgutils.create_struct_proxy(row)(context, builder)
            _columns(builder, source, len(row.slots), builder.load(_field(builder, call, "columns", _BYTES)))
            sink = cgutils.create_struct_proxy(emit)(context, builder)
            for name in ("count", "limit", "slot"):
                setattr(sink, name, cgutils.alloca_once_value(builder, _I64(0)))
            sink.origin = builder.load(_field(builder, call, "origin", _INT32S))
            _columns(builder, sink, len(emit.slots), builder.load(_field(builder, call, "out", _BYTES)))
            record = before = None
            if state is not None:
                base = builder.load(_field(builder, call, "states", _BYTES))
                stride = builder.load(_field(builder, call, "state_stride", _I64))
                records = builder.load(_field(builder, call, "records", _INT32S))
                before = builder.bitcast(cgutils.alloca_once(builder, ll.ArrayType(_I64, size // 8)), _BYTES)
            result = cgutils.alloca_once_value(builder, n)
            with cgutils.for_range(builder, n) as loop:
                k = loop.index
                source.slot = builder.sext(builder.load(builder.gep(rows, [k])), _I64)
                start = builder.load(sink.count)
                builder.store(source.slot, sink.slot)
                builder.store(builder.add(start, _I64(fan_out)), sink.limit)
                values = [source._getvalue(), sink._getvalue()]
                if state is not None:
                    index = builder.sext(builder.load(builder.gep(records, [k])), _I64)
                    record = builder.gep(base, [builder.mul(index, stride)])
                    cgutils.raw_memcpy(builder, before, record, _I64(size // 8), 8, align=8)
                    values.insert(1, record)
                status, _ = context.call_internal_no_propagate(builder, user.fndesc, user.signature, values)
                order = "!=" if exact else ">"
                miscounted = builder.icmp_signed(order, builder.load(sink.count), builder.load(sink.limit))
                with builder.if_then(builder.or_(status.is_error, miscounted), likely=False):
                    if state is not None:
                        cgutils.raw_memcpy(builder, record, before, _I64(size // 8), 8, align=8)
                    builder.store(start, sink.count)
                    builder.store(builder.sub(_I64(-1), k), result)
                    loop.do_break()
            builder.store(builder.load(sink.count), _field(builder, call, "n_out", _I64))
            return builder.load(result)

        return types.int64(types.int64, types.voidptr), generate

    return run


def compile_function(
    fn: Any, rows: pa.Schema, state: pa.Schema | None, outputs: pa.Schema, fan_out: int, exact: bool, where: str
) -> CompiledFunction:
    """See `ordstream.udf.compile_rows` and `compile_process`."""
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
    return Slot(column.name, physical_type(column.type, column.name), column.nullable, is_string(column.type), offset)


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
    user = numba.njit(fn, error_model="python", nogil=True, forceinline=True)
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
        raise PlanError(f"{where}: {fn.__name__} returns {compiled.signature.return_type}; a compiled function emits its outputs")
    annotation = compiled.type_annotation
    for block in annotation.blocks.values():
        for statement in block.body:
            if not isinstance(statement, ir.SetAttr) or annotation.typemap[statement.target.name] != record:
                continue
            given = annotation.typemap[statement.value.name]
            wanted = record.slots[statement.attr].value if record is not None else None
            if not converts(compiled.target_context.typing_context, _plain(given), wanted):
                error = errors.TypingError(f"state.{statement.attr} takes {wanted}, got {given}", loc=statement.loc)
                raise compile_error(fn, error, where)
