"""Random expressions over the columns of `unit.kernel_check`."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

import ordstream as od

INTEGERS = st.deferred(
    lambda: (
        st.sampled_from(
            [
                od.col("i"),
                od.col("j"),
                od.col("i"),
                od.lit(3),
                od.lit(-1),
                od.lit(0),
                od.lit(None, pa.int64()),
            ]
        )
        | st.builds(
            lambda f, a, b: f(a, b),
            st.sampled_from(
                [
                    lambda a, b: a + b,
                    lambda a, b: a - b,
                    lambda a, b: a * b,
                    lambda a, b: a // b,
                    lambda a, b: a % b,
                    lambda a, b: a.minimum(b),
                    lambda a, b: a.maximum(b),
                    lambda a, b: a.coalesce(b),
                ]
            ),
            INTEGERS,
            INTEGERS,
        )
        | st.builds(lambda a: -a, INTEGERS)
        | st.builds(abs, INTEGERS)
        | st.builds(od.if_else, BOOLEANS, INTEGERS, INTEGERS)
        | st.just(od.col("l").length())
        | st.just(od.col("s").length())
        | st.just(od.col("i").lookup(pa.array([10, None, 30])))
        | st.builds(lambda a: a.cast(pa.int64()), REALS)
    )
)
REALS = st.deferred(
    lambda: (
        st.sampled_from(
            [od.col("x"), od.col("f"), od.lit(2.0), od.lit(0.0), od.lit(-0.5), od.lit(None, pa.float64())]
        )
        | st.builds(
            lambda f, a, b: f(a, b),
            st.sampled_from(
                [
                    lambda a, b: a + b,
                    lambda a, b: a - b,
                    lambda a, b: a * b,
                    lambda a, b: a / b,
                    lambda a, b: a // b,
                    lambda a, b: a % b,
                    lambda a, b: a**b,
                    lambda a, b: a.minimum(b),
                    lambda a, b: a.maximum(b),
                    lambda a, b: a.atan2(b),
                    lambda a, b: a.coalesce(b),
                ]
            ),
            REALS,
            REALS,
        )
        | st.builds(
            lambda f, a: getattr(a, f)(),
            st.sampled_from(
                ["sqrt", "exp", "log", "log10", "floor", "ceil", "round", "__neg__", "__abs__", "atan"]
            ),
            REALS,
        )
        | st.builds(od.if_else, BOOLEANS, REALS, REALS)
        | st.just(od.col("i").lookup(pa.array([0.5, 1.5])))
        | st.builds(lambda a: a.cast(pa.float64()), INTEGERS)
    )
)
BOOLEANS = st.deferred(
    lambda: (
        st.sampled_from(
            [od.col("b"), od.lit(True), od.lit(False), od.lit(None, pa.bool_()), od.col("s").is_null()]
        )
        | st.builds(
            lambda f, a, b: f(a, b),
            st.sampled_from(
                [lambda a, b: a < b, lambda a, b: a >= b, lambda a, b: a == b, lambda a, b: a != b]
            ),
            INTEGERS,
            INTEGERS,
        )
        | st.builds(
            lambda f, a, b: f(a, b),
            st.sampled_from(
                [lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a == b, lambda a, b: a > b]
            ),
            REALS,
            REALS,
        )
        | st.builds(
            lambda f, a: f(od.col("s"), a),
            st.sampled_from([lambda a, b: a < b, lambda a, b: a == b]),
            st.sampled_from(["a", "", "b"]),
        )
        | st.builds(lambda a, b: a & b, BOOLEANS, BOOLEANS)
        | st.builds(lambda a, b: a | b, BOOLEANS, BOOLEANS)
        | st.builds(lambda a: ~a, BOOLEANS)
        | st.builds(lambda a: a.is_null(), INTEGERS | REALS)
        | st.builds(lambda a: a.is_not_null(), INTEGERS | REALS)
        | st.builds(lambda a, v: a.isin(v), INTEGERS, st.lists(st.integers(-5, 5), max_size=20))
        | st.builds(
            lambda v: od.col("s").isin(v), st.lists(st.sampled_from(["a", "b", "zz", ""]), max_size=4)
        )
    )
)
