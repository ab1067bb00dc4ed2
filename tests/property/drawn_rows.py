"""Random operators that keep rows, or let them pass: what `Chain` draws of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st
from property.drawn_expressions import Expressions, named, plain_number
from property.drawn_options import can_be_time
from property.drawn_values import comparable

from ordstream.ground.types import is_fixed_number

RAISES = st.sampled_from([None, None, None, 3])


class RowOperators:
    """Part of `property.strategies.Chain`."""

    draw: Any
    schema: pa.Schema
    pick: Any
    policy: Any
    time: Any
    fresh: Any
    key: Any
    add: Any
    rejected: Any
    pipeline: Any
    texts: list[str]

    def keep_rejected(self) -> None:
        """Note the second output of the last operator, if it has one."""
        last = self.pipeline.plan.operators[-1]
        if last.rejects and self.rejected is not None:
            text = f".side_output({last.name!r})"
            second: Any = type(self)
            self.rejected.append(
                second(self.draw, self.pipeline.side_output(last.name), [*self.texts, text])
            )

    def policy_of_function(self) -> str:
        """Of an operator with a Python function."""
        if self.draw(st.integers(0, 2)) == 0:
            return self.pick((", on_error=od.retry(2)", ", on_error=od.retry(1, then='skip')"))
        if self.rejected is None or self.draw(st.integers(0, 3)) == 0:
            return self.policy()
        then = self.pick(("'dead_letter'", "od.retry(1, then='dead_letter')"))
        return f", on_error={then}, name='letters{len(self.rejected)}'"

    def raises(self) -> Any:
        """For which rows a function raises: more often where these may go into a second output."""
        return self.draw(RAISES) if self.rejected is None else self.pick((None, 3, 3))

    def lag(self) -> None:
        self.shown("lag", "before")

    def lead(self) -> None:
        self.shown("lead", "behind")

    def shown(self, method: str, base: str) -> None:
        """Columns of a row before or behind, at times only of fixed width: lag has a kernel for these."""
        plain = named(self.schema, lambda t: is_fixed_number(t) or pat.is_boolean(t))
        able = plain if plain and self.draw(st.booleans()) else self.schema.names
        columns: dict[str, str] = {}
        for name in self.draw(st.lists(st.sampled_from(able), min_size=1, max_size=3)):
            columns[
                next(n for i in range(99) if (n := f"{base}{i}") not in {*self.schema.names, *columns})
            ] = name
        key = (self.key() or "") if self.draw(st.integers(0, 3)) else ""
        n = self.pick(("", "", ", 2", ", n=5"))
        self.add(f"{key}.{method}({columns!r}{n}{self.policy()})")

    def ends(self) -> None:
        """The first or the last rows."""
        key = (self.key() or "") if self.draw(st.integers(0, 3)) else ""
        self.add(f"{key}.{self.pick(('head', 'head', 'tail'))}({self.pick((1, 2, 7))}{self.policy()})")

    def best(self) -> None:
        """The best rows of a key."""
        key, numbers = self.key(), named(self.schema, is_fixed_number)
        able = [name for name in numbers if name not in self.pipeline_key(key)] if key else []
        options = self.pick(("", ", emit='updates'", ", rank='rank_'", ", emit='updates', rank='rank_'"))
        if able and not {"rank", "rank_"} & set(self.schema.names):
            by, turned = self.pick(able), self.pick(("", ", descending=False"))
            self.add(f"{key}.top_k({self.pick((1, 2, 3, 9))}, {by!r}{turned}{options}{self.policy()})")

    def deduplicate(self) -> None:
        able = named(self.schema, comparable)
        times = named(self.schema, can_be_time)
        if able:
            by = self.draw(st.lists(st.sampled_from(able), min_size=1, max_size=2, unique=True))
            keep = self.pick(("", ", keep='last'"))
            if times and self.draw(st.integers(0, 2)):
                keep += f", time={self.time(times)!r}, within={self.pick((0, 2, 40))}"
            self.add(f".deduplicate({by!r}{keep}{self.policy()})")

    def running(self) -> None:
        """cum_sum and the like, and diff."""
        numbers = named(self.schema, plain_number)
        if numbers:
            name, out = self.pick(numbers), self.fresh("running")
            call = self.pick(
                (
                    *(f"cum_{kind}({name!r}, {out!r}" for kind in ("sum", "min", "max", "mean")),
                    f"cum_count({out!r}",
                    f"diff({name!r}, {out!r}, n={self.pick((1, 3))}",
                )
            )
            key = (self.key() or "") if self.draw(st.integers(0, 3)) else ""
            self.add(f"{key}.{call}{self.policy()})")

    def looking(self, function: str) -> str:
        """The text of a function of a row, as often as not of one that looks at some of the columns only."""
        names = [name for name in self.schema.names if name.isidentifier() and name[:2] != "__"]
        if not names or self.draw(st.booleans()):
            return function
        some = self.draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
        return f"f.looking_at({some!r}, {function})"

    def checked(self) -> None:
        """assert_that, sample, inspect."""
        condition = Expressions(self.draw, self.schema).boolean()
        self.add(
            self.pick(
                (
                    f".assert_that({condition}{self.policy()})",
                    f".assert_that({condition}, 'as it is', on_error='skip')",
                    f".sample({self.pick((0.0, 0.3, 0.9))}, {self.pick((0, 7))})",
                    f".inspect({self.looking(f'f.keeps(2, {self.draw(RAISES)})')}{self.policy()})",
                )
            )
        )
