"""Random pipelines with windows that go by a computed clock, or by one that leaves `reorder`."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from property import strategies as s
from property.drawn_options import options
from property.drawn_values import batches, schemas, tables
from property.drawn_windows import agreed

import ordstream as od


@st.composite
def clocked(draw: Any) -> s.Case:
    """A case with a window by a time that was computed, or that leaves `reorder`, where there is one."""
    schema = draw(schemas())
    ascending = draw(s.clocks(schema))
    chain = s.Chain(draw, od.Pipeline(schema), clocks=ascending)
    steps = (("filter", "scan"), ("computed_time", "reorder"), ("filter", "rolling"), ("window",),
             ("scan", "window", "reorder", "count"))  # fmt: skip
    for names in steps:
        if len(names) != 2 or "reorder" in names or draw(st.booleans()):
            getattr(chain, draw(st.sampled_from(names)))()
    given = agreed(chain.pipeline, draw(options(schema, ascending)))
    return s.Case(chain, draw(batches(draw(tables(schema, clocks=ascending)))), given, draw(st.booleans()))
