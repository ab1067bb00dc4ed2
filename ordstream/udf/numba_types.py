"""Numba types of a compiled user function: a lazy row, a state record, `emit`, strings and lists as views.

Values are 64 bits wide inside: an int8 column reads as int64, and an int64 written to an int8 column is
range-checked, so that arithmetic is what the interpreted function does (up to 64 bits).
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import llvmlite.ir as ll
from numba import types
from numba.core import cgutils, errors
from numba.core.typeconv import Conversion
from numba.core.typing.templates import (
    AbstractTemplate,
    AttributeTemplate,
    infer,
    infer_getattr,
    infer_global,
    signature,
)
from numba.extending import (
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    lower_setattr_generic,
    models,
    overload,
    register_model,
)

from ordstream.ground.rows import no_column

_serial = itertools.count()
#: Part of the size of a list with nulls.
LIST_NULLS = 1 << 62

I8 = ll.IntType(8)
I64 = ll.IntType(64)
BYTES = I8.as_pointer()
INT32S = ll.IntType(32).as_pointer()

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


# ---------------------------------------------------------------------------------------- values of a column


class Slot:
    """How one column or state field is stored, and what it is inside a compiled function.

    Parameters
    ----------
    name : str
    physical : ordstream.ground.types.Physical
    nullable : bool
    text : bool
        A view is utf8 (its `len` counts characters), not binary.
    offset : int
        State fields: bytes from the start of the record.
    """

    def __init__(
        self, name: str, physical: Any, nullable: bool = False, text: bool = False, offset: int = 0
    ) -> None:
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
        elif self.code == "packed":
            self.memory = self.value = ViewType(f"packed {physical.detail}", None)
        else:
            self.memory = self.value = ViewType("wide", None)

    def load(self, context: Any, builder: Any, pointer: Any) -> Any:
        """LLVM value of type `self.value`, from an i8* into memory."""
        memory = context.get_value_type(self.memory)
        raw = builder.load(builder.bitcast(pointer, memory.as_pointer()))
        if self.code == "bool":
            return builder.icmp_unsigned("!=", raw, raw.type(0))
        if self.code == "f32":
            return builder.fpext(raw, ll.DoubleType())
        if self.code == "u64":
            text = f"{self.name!r}: a uint64 above the int64 range in a compiled function"
            _raise_if(context, builder, builder.icmp_signed("<", raw, raw.type(0)), text)
            return raw
        if self.code in NUMBERS and self.memory.bitwidth < 64:
            return (builder.sext if self.memory.signed else builder.zext)(raw, I64)
        return raw

    def store(self, context: Any, builder: Any, value: Any, pointer: Any) -> None:
        """Write an LLVM value of type `self.value`; OverflowError if a narrower integer can't hold it."""
        if self.code == "bool":
            value = builder.zext(value, I8) if value.type.width < 8 else value
        elif self.code == "f32":
            value = builder.fptrunc(value, ll.FloatType())
        elif (
            self.code in NUMBERS
            and (self.low, self.high) != (types.int64.minval, types.int64.maxval)
            and self.high
        ):
            below = builder.icmp_signed("<", value, I64(self.low))
            above = builder.icmp_signed(">", value, I64(self.high))
            _raise_if(
                context,
                builder,
                builder.or_(below, above),
                f"{self.name!r} is out of range for {self.memory}",
            )
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


class ViewType(types.Type):
    """Bytes or list elements that lie elsewhere: {data, size}. So do decimals of over 18 digits, opaque."""

    def __init__(self, kind: str, element: Any) -> None:
        self.kind = kind
        self.element = element
        super().__init__(name=f"ordstream.{kind}{'' if element is None else f'({element.code})'}")


@register_model(ViewType)
class ViewModel(models.StructModel):
    def __init__(self, manager: Any, front: Any) -> None:
        super().__init__(manager, front, [("data", types.CPointer(types.uint8)), ("size", types.int64)])


def plain(type_: Any) -> Any:
    """The type without Optional."""
    return type_.type if isinstance(type_, types.Optional) else type_


@intrinsic
def _count_characters(typing: Any, view: Any) -> Any:
    """len() of a view: characters of utf8, bytes of binary, elements of a list. TypeError for None."""
    view = plain(view)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data, size = (builder.extract_value(args[0], i) for i in (0, 1))
        if view.kind != "text":
            return _elements(builder, size) if view.kind == "list" else size
        count = cgutils.alloca_once_value(builder, I64(0))
        with cgutils.for_range(builder, size) as loop:
            byte = builder.load(builder.gep(data, [loop.index]))
            starts = builder.icmp_unsigned("!=", builder.and_(byte, I8(0xC0)), I8(0x80))
            builder.store(builder.add(builder.load(count), builder.zext(starts, I64)), count)
        return builder.load(count)

    return types.int64(view), generate


def _elements(builder: Any, size: Any) -> Any:
    """How many elements a list has whose view says `size` (_core/ground/list_values.pxd)."""
    return builder.and_(size, I64(LIST_NULLS - 1))


@overload(len)
def _view_len(view):  # Numba compares this signature with the lambda's
    bare = plain(view)
    if isinstance(bare, ViewType) and bare.kind in ("text", "binary", "list"):
        return lambda view: _count_characters(view)
    return None


@infer_global(operator.getitem)
class ViewGetItem(AbstractTemplate):
    """An element of a list column; a negative or too large index raises IndexError."""

    def generic(self, args: Any, kws: Any) -> Any:
        view, index = plain(args[0]), args[1]
        if isinstance(view, ViewType) and view.kind == "list" and isinstance(index, types.Integer):
            return signature(view.element.value, view, types.int64)
        return None


@lower_builtin(operator.getitem, ViewType, types.int64)
def _view_getitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    data, told = (builder.extract_value(args[0], i) for i in (0, 1))
    size = _elements(builder, told)
    index = builder.select(builder.icmp_signed("<", args[1], I64(0)), builder.add(args[1], size), args[1])
    with builder.if_then(builder.icmp_unsigned(">=", index, size), likely=False):
        context.call_conv.return_user_exc(builder, IndexError, ("list index out of range",))
    element = sig.args[0].element
    with builder.if_then(builder.icmp_signed(">=", told, I64(LIST_NULLS)), likely=False):
        there = builder.gep(data, [builder.add(builder.mul(size, I64(element.width)), index)])
        with builder.if_then(builder.icmp_unsigned("==", builder.load(there), I8(0)), likely=False):
            text = "this element of the list is None"
            context.call_conv.return_user_exc(builder, TypeError, (text,))
    return element.load(context, builder, builder.gep(data, [builder.mul(index, I64(element.width))]))


def _bytes_of(context: Any, builder: Any, type_: Any, value: Any) -> tuple[Any, Any]:
    """(data, size) of a view or of a string constant."""
    if isinstance(type_, types.StringLiteral):
        encoded = type_.literal_value.encode()
        return context.insert_const_string(builder.module, type_.literal_value), I64(len(encoded))
    return builder.extract_value(value, 0), builder.extract_value(value, 1)


def _is_text(type_: Any) -> bool:
    return isinstance(type_, types.StringLiteral) or (
        isinstance(type_, ViewType) and type_.kind in ("text", "binary")
    )


def _compares(left: Any, right: Any) -> bool:
    sides = [plain(left), plain(right)]
    return all(map(_is_text, sides)) and any(isinstance(side, ViewType) for side in sides)


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
            kind = ll.FunctionType(ll.IntType(32), [BYTES, BYTES, I64])
            memcmp = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
            builder.store(
                builder.icmp_signed("==", builder.call(memcmp, [a, b, n]), ll.IntType(32)(0)), result
            )
        return builder.load(result)

    return (types.boolean(left, right), generate) if _compares(left, right) else None


# target="cpu": before Numba's own, which says that an optional string of ours and a str constant differ.
@overload(operator.eq, prefer_literal=True, target="cpu")
def _view_eq(left, right):
    return (lambda left, right: _views_equal(left, right)) if _compares(left, right) else None


@overload(operator.ne, prefer_literal=True, target="cpu")
def _view_ne(left, right):
    return (lambda left, right: not _views_equal(left, right)) if _compares(left, right) else None


# ------------------------------------------------------------------------------------------ row, state, emit


class Usage:
    """What the compiler saw a function do: `read`, column names; `may_be_null`, output column indexes."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.may_be_null: set[int] = set()


class RowType(types.Type):
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
class RowModel(models.StructModel):
    def __init__(self, manager: Any, front: RowType) -> None:
        members = [("slot", types.int64)]
        for i in range(len(front.slots)):
            members += [
                (f"data{i}", types.CPointer(types.uint8)),
                (f"valid{i}", types.CPointer(types.uint8)),
            ]
        super().__init__(manager, front, members)


@infer_getattr
class RowAttribute(AttributeTemplate):
    key = RowType

    def generic_resolve(self, row: RowType, name: str) -> Any:
        found = row.find(name)
        if found is None:
            return None
        row.usage.read.add(name)
        slot = found[1]
        return types.Optional(slot.value) if slot.nullable and row.checks_nulls else slot.value


@infer
class RowItem(AbstractTemplate):
    """`row["x"]` with a constant: as `row.x`."""

    key = "static_getitem"

    def generic(self, args: Any, kws: Any) -> Any:
        row, name = args
        if not isinstance(row, RowType) or not isinstance(name, str):
            return None
        found = RowAttribute(self.context).generic_resolve(row, name)
        if found is None:
            raise errors.TypingError(no_column(name, [slot.name for slot in row.slots]))
        return signature(found, *args)


@lower_getattr_generic(RowType)
def _row_getattr(context: Any, builder: Any, row: RowType, value: Any, name: str) -> Any:
    found = row.find(name)
    assert found is not None
    i, slot = found
    struct = cgutils.create_struct_proxy(row)(context, builder, value=value)
    pointer = builder.gep(getattr(struct, f"data{i}"), [builder.mul(struct.slot, I64(slot.width))])
    if not (slot.nullable and row.checks_nulls):
        return slot.load(context, builder, pointer)
    valid = getattr(struct, f"valid{i}")
    is_valid = cgutils.alloca_once_value(builder, cgutils.true_bit)
    with builder.if_then(cgutils.is_not_null(builder, valid), likely=True):
        builder.store(
            builder.icmp_unsigned("!=", builder.load(builder.gep(valid, [struct.slot])), I8(0)), is_valid
        )
    helper = context.make_helper(builder, types.Optional(slot.value))
    helper.valid = builder.load(is_valid)
    helper.data = cgutils.get_null_value(context.get_value_type(slot.value))
    content = cgutils.alloca_once_value(builder, helper.data)
    with builder.if_then(helper.valid, likely=True):
        builder.store(slot.load(context, builder, pointer), content)
    helper.data = builder.load(content)
    return helper._getvalue()


@lower_builtin("static_getitem", RowType, types.StringLiteral)
def _row_getitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return _row_getattr(context, builder, sig.args[0], args[0], args[1])


class StateType(types.Type):
    """The state record of the row's key: a pointer. Attributes are readable and writable."""

    def __init__(self, slots: Any) -> None:
        self.slots = {slot.name: slot for slot in slots}
        super().__init__(name=f"state({', '.join(self.slots)})#{next(_serial)}")


@register_model(StateType)
class StateModel(models.OpaqueModel):
    """An i8*."""


@infer_getattr
class StateAttribute(AttributeTemplate):
    key = StateType

    def generic_resolve(self, state: StateType, name: str) -> Any:
        slot = state.slots.get(name)
        return None if slot is None else slot.value


@lower_getattr_generic(StateType)
def _state_getattr(context: Any, builder: Any, state: StateType, value: Any, name: str) -> Any:
    slot = state.slots[name]
    return slot.load(context, builder, builder.gep(value, [I64(slot.offset)]))


@lower_setattr_generic(StateType)
def _state_setattr(context: Any, builder: Any, sig: Any, args: Any, name: str) -> None:
    slot = sig.args[0].slots[name]
    slot.store(context, builder, args[1], builder.gep(args[0], [I64(slot.offset)]))


class EmitType(types.Callable):
    """`emit(value, ...)`: one output row. Beyond the fan-out it stores nothing: the loop fails the row."""

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
        given = [
            self._argument(context, i, slot, arg)
            for i, (slot, arg) in enumerate(zip(self.slots, args, strict=True))
        ]
        return signature(types.none, *given, recvr=self)

    def _argument(self, context: Any, index: int, slot: Slot, arg: Any) -> Any:
        """Type to which an argument is converted; TypingError where that would lose something."""
        if (
            isinstance(arg, types.StringLiteral)
            and isinstance(slot.value, ViewType)
            and _is_text(slot.value)
        ):
            return arg
        arg = types.unliteral(arg)
        optional = isinstance(arg, types.Optional)
        if isinstance(arg, types.NoneType) or optional:
            if not slot.nullable:
                raise errors.TypingError(f"emit: column {slot.name!r} is not nullable, got {arg}")
            self.usage.may_be_null.add(index)
        if isinstance(arg, types.NoneType):
            return arg
        if not converts(context, plain(arg), slot.value):
            raise errors.TypingError(f"emit: column {slot.name!r} takes {slot.value}, got {arg}")
        return types.Optional(slot.value) if optional else slot.value


def converts(context: Any, given: Any, wanted: Any) -> bool:
    """Whether a value may be stored as `wanted`, as in `to_storage`: no bool to number, no float to int."""
    given = types.unliteral(given)
    if isinstance(given, ViewType) or isinstance(wanted, ViewType):
        return given == wanted or (
            isinstance(given, ViewType)
            and isinstance(wanted, ViewType)
            and given.kind == wanted.kind == "list"
            and given.element.code == wanted.element.code
        )
    if (given == types.boolean) != (wanted == types.boolean):
        return False
    conversion = context.can_convert(given, wanted)
    return conversion is not None and int(conversion) <= int(Conversion.safe)


@register_model(EmitType)
class EmitModel(models.StructModel):
    def __init__(self, manager: Any, front: EmitType) -> None:
        pointer = types.CPointer(types.int64)
        members = [
            ("count", pointer),
            ("limit", pointer),
            ("slot", pointer),
            ("origin", types.CPointer(types.int32)),
        ]
        for i in range(len(front.slots)):
            members += [
                (f"data{i}", types.CPointer(types.uint8)),
                (f"valid{i}", types.CPointer(types.uint8)),
            ]
        super().__init__(manager, front, members)


@lower_builtin(EmitType, EmitType, types.VarArg(types.Any))
def _emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    type_ = sig.args[0]
    emit = cgutils.create_struct_proxy(type_)(context, builder, value=args[0])
    n = builder.load(emit.count)
    with builder.if_then(builder.icmp_signed("<", n, builder.load(emit.limit)), likely=True):
        for i, (slot, value, given) in enumerate(zip(type_.slots, args[1:], sig.args[1:], strict=True)):
            pointer = builder.gep(getattr(emit, f"data{i}"), [builder.mul(n, I64(slot.width))])
            valid = builder.gep(getattr(emit, f"valid{i}"), [n])
            if isinstance(given, types.NoneType):
                builder.store(I8(0), valid)
                value = cgutils.get_null_value(context.get_value_type(slot.value))
            elif isinstance(given, types.Optional):
                helper = context.make_helper(builder, given, value=value)
                builder.store(builder.zext(helper.valid, I8), valid)
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
    builder.store(builder.add(n, I64(1)), emit.count)
    return context.get_dummy_value()
