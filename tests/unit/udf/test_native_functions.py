"""Compiled user functions that come as C functions: resolving, calling, rollback, broken contracts."""

from __future__ import annotations

import ctypes
import sys

import pyarrow as pa
import pytest
from udf_stages import I64, SOURCE, batch, door, process_stage, rows_stage, strict

from ordstream._core.lab import testing_udf as _testing_udf
from ordstream.errors import PlanError
from ordstream.udf import functions as udf

CAPI = _testing_udf.__pyx_capi__

PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def address_of(capsule):
    return udf._read_capsule(capsule)[0]


class TestResolve:
    def test_capsule(self):
        native = udf.resolve_callable(CAPI["native_above"])
        assert native.address == address_of(CAPI["native_above"])
        assert native.keep == (CAPI["native_above"],)

    def test_ctypes(self):
        function = PROTOTYPE(address_of(CAPI["native_above"]))
        assert udf.resolve_callable(function).address == address_of(CAPI["native_above"])

    def test_cffi(self):
        cffi = pytest.importorskip("cffi")
        ffi = cffi.FFI()
        pointer = ffi.cast("int64_t(*)(int64_t, void *, void *)", address_of(CAPI["native_above"]))
        assert udf.resolve_callable(pointer).address == address_of(CAPI["native_above"])
        with pytest.raises(PlanError, match="not a function pointer"):
            udf.resolve_callable(ffi.new("int *"))

    def test_scipy_with_user_data(self):
        scipy = pytest.importorskip("scipy")
        number = ctypes.c_int64(5)
        user_data = ctypes.cast(ctypes.pointer(number), ctypes.c_void_p)
        function = PROTOTYPE(address_of(CAPI["native_above"]))
        for callable_ in (
            scipy.LowLevelCallable(function, user_data),
            scipy.LowLevelCallable(CAPI["native_above"], user_data),
            scipy.LowLevelCallable.from_cython(_testing_udf, "native_above", user_data),
        ):
            native = udf.resolve_callable(callable_)
            assert native.address == address_of(CAPI["native_above"])
            assert native.user_data == ctypes.addressof(number)
            kernel = door(rows_stage(callable_, strict(y=I64)))
            assert kernel.apply(batch(SOURCE, k=[1, 2, 3], x=[4, 5, 6]))[0] == [(6,)]

    def test_numba_cfunc(self):
        numba = pytest.importorskip("numba")
        types = numba.types

        @numba.cfunc(types.int64(types.int64, types.voidptr, types.voidptr))
        def nothing(n, call, user_data):
            return n

        assert udf.resolve_callable(nothing).address == nothing.address
        assert door(rows_stage(nothing, strict(y=I64))).apply(batch(SOURCE, k=[1], x=[2]))[0] == []

        @numba.cfunc(types.float64(types.float64))
        def other(x):
            return x

        with pytest.raises(
            PlanError, match=r"double \(double\), needed is int64_t \(int64_t, void \*, void \*\)"
        ):
            udf.resolve_callable(other)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (CAPI["native_other"], r"signature double \(double\)"),
            (
                ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(1),
                "int32_t",
            ),
            (ctypes.CFUNCTYPE(None, ctypes.c_int64)(1), "signature void"),
            (
                ctypes.CDLL(None).llabs if sys.platform != "win32" else None,
                "argtypes|compiled function is needed",
            ),
            (PROTOTYPE(0), "NULL"),
            (lambda row, emit: None, "compiled=True"),
            (42, "a compiled function is needed"),
        ],
    )
    def test_rejected(self, wrong, message):
        with pytest.raises(PlanError, match=message):
            udf.resolve_callable(wrong)

    def test_is_native(self):
        assert udf.is_native(CAPI["native_above"])
        assert not udf.is_native(len)


class TestNative:
    """C functions through the whole kernel."""

    def test_rows(self):
        kernel = door(rows_stage(CAPI["native_above"], strict(y=I64)))
        data = batch(SOURCE, k=[1, 2, 3, 4], x=[7, 0, 8, 9])
        assert kernel.apply(data) == ([(7,), (8,), (9,)], [0, 2, 3])
        assert kernel.apply(data, select=[1, 3]) == ([(9,)], [3])

    def test_failing_row_drops_its_outputs(self):
        data = batch(SOURCE, k=[1, 2, 3, 4], x=[7, 8, -1, 9])
        kernel = door(rows_stage(CAPI["native_above"], strict(y=I64)))
        assert kernel.apply(data)[0] == [(7,), (8,)]
        assert kernel.failure[0] == 2
        kernel = door(rows_stage(CAPI["native_above"], strict(y=I64), on_error="skip"))
        assert kernel.apply(data) == ([(7,), (8,), (9,)], [0, 1, 3])
        assert kernel.skipped == 1

    def test_process_rolls_back(self):
        output = strict(k=I64, n=I64, total=I64)
        state = pa.schema({"n": I64, "total": I64})
        data = batch(SOURCE, k=[1, 2, 1, 1, 2, 1], x=[5, 6, -1, 7, -1, 8])
        kernel = door(process_stage(CAPI["native_total"], output, state, on_error="skip"))
        rows, origins, done = kernel.process(data)
        assert rows == [(1, 1, 5), (2, 1, 6), (1, 2, 12), (1, 3, 20)]
        assert (origins, done, kernel.skipped) == ([0, 1, 3, 5], 6, 0)
        kernel = door(process_stage(CAPI["native_total"], output, state))
        assert kernel.process(data)[::2] == ([(1, 1, 5), (2, 1, 6)], 2)

    @pytest.mark.parametrize(("how", "message"), [(0, "more outputs"), (1, "neither n nor"), (2, "origins")])
    def test_broken_contract_is_an_error(self, how, message):
        scipy = pytest.importorskip("scipy")
        number = ctypes.c_int64(how)
        function = scipy.LowLevelCallable(
            CAPI["native_wrong"], ctypes.cast(ctypes.pointer(number), ctypes.c_void_p)
        )
        kernel = door(rows_stage(function, strict(y=I64)))
        assert kernel.apply(batch(SOURCE, k=[1, 2], x=[1, 2]))[0] == []
        assert message in kernel.failure[2]

    def test_exact(self):
        kernel = door(rows_stage(CAPI["native_above"], strict(y=I64), exact=True))
        assert kernel.apply(batch(SOURCE, k=[1, 2], x=[1, 2]))[0] == [(1,), (2,)]
        kernel.apply(batch(SOURCE, k=[1, 2], x=[1, 0]))
        assert kernel.failure is not None
