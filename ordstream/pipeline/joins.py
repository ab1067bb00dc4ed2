"""Joins: the methods of `Pipeline` that bring rows of something else beside the tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ordstream.ground.duration import Duration
from ordstream.operators.join_lookup import JoinLookup
from ordstream.operators.operator import OnError, Operator, Site
from ordstream.operators.time_joins import AsofJoin, IntervalJoin, Sides

if TYPE_CHECKING:
    from ordstream.pipeline.pipeline import Pipeline


class Joins:
    """Part of `Pipeline`."""

    def join_lookup(
        self,
        table: Any,
        on: str | Sequence[str] | Mapping[str, str],
        how: Literal["inner", "left"] = "inner",
        *,
        suffix: str = "_right",
        validate: Literal["m:m", "m:1"] = "m:m",
        name: str | None = None,
    ) -> Pipeline:
        """Each tuple with the rows of a table that have its key: enrichment from a table that stays as it
        is. Output: input columns, then those of the table but its key columns.

        One output per row of the table with the key, in the table's order; so a key that the table has twice
        gives two outputs. The table keeps no state and needs no order. It is held in memory, once in each
        process, and travels to processes and to Spark's executors with the pipeline.

        Parameters
        ----------
        table : Arrow data
            A table, data frame or record batch (`__arrow_c_stream__`), read when this is called. What is not
            needed is left out before: `table.select(["item", "name"])`. Dictionaries are decoded.
        on : str, sequence of str, or mapping
            The key: columns that both have, or {column of the tuples: column of the table} where names
            differ (left_on and right_on elsewhere). Any types that can be keys; integers of any width are
            compared by value, other types must be the same. Null equals nothing, not even null; NaN is NaN.
        how : "inner" or "left"
            "left": a tuple without such a row is given too, with nulls.
        suffix : str
            Put behind the name of a column of the table that the tuples have too.
        validate : "m:m" or "m:1"
            "m:1": PlanError, with key and rows, where the table has a key twice.
        """
        site = self._site("join_lookup", name, "fail")
        return self._then(JoinLookup.bind(site, table, on, how, suffix, validate))

    # ------------------------------------------------------------------------------------- of the pipeline

    if TYPE_CHECKING:

        def _site(self, op: str, name: str | None, on_error: OnError) -> Site: ...

        def _then(self, operator: Operator) -> Pipeline: ...


class KeyedJoins:
    """Part of `KeyedPipeline`: joins of one lane that has both sides."""

    def _join_interval(
        self,
        sides: Sides,
        within: tuple[Duration, Duration],
        how: Literal["inner", "left"] = "inner",
        *,
        max_state_bytes: int | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        site = self._site("join_interval", name, on_error)
        return self._then(IntervalJoin.bind(site, sides, within, how, max_state_bytes))

    def _join_asof(
        self,
        sides: Sides,
        tolerance: Duration | None = None,
        *,
        max_state_bytes: int | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        site = self._site("join_asof", name, on_error)
        return self._then(AsofJoin.bind(site, sides, tolerance, max_state_bytes))

    # ------------------------------------------------------------------------------------- of the pipeline

    if TYPE_CHECKING:

        def _site(self, op: str, name: str | None, on_error: OnError) -> Site: ...

        def _then(self, operator: Operator) -> Pipeline: ...
