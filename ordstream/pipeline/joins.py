"""Joins: the methods of `Pipeline` that bring rows of something else beside the tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ordstream.errors import PlanError
from ordstream.ground.duration import Duration
from ordstream.operators.error_policy import OnError
from ordstream.operators.join_lookup import bound_lookup, named_pairs
from ordstream.operators.operator import Operator, Site
from ordstream.operators.time_joins import AsofJoin, IntervalJoin, Sides
from ordstream.plan.sides import united_sides

if TYPE_CHECKING:
    from ordstream.pipeline.keyed_pipeline import KeyedPipeline
    from ordstream.pipeline.pipeline import Pipeline
    from ordstream.plan.plan import Plan


class Joins:
    """Part of `Pipeline`."""

    def join_lookup(
        self,
        table: Any,
        on: str | Sequence[str] | Mapping[str, str],
        how: Literal["inner", "left", "semi", "anti"] = "inner",
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
            compared by value, and decimals that the tuples' type holds; times need one unit, other types
            must be the same. Null equals nothing, not even null; NaN is NaN.
        how : "inner", "left", "semi" or "anti"
            "left": a tuple without such a row is given too, with nulls. "semi": the tuples that have such a
            row, "anti": those that have none, each once and without a column of the table; so a tuple with a
            null in its key is given by "anti".
        suffix : str
            Put behind the name of a column of the table that the tuples have too.
        validate : "m:m" or "m:1"
            "m:1": PlanError, with key and rows, where the table has a key twice that tuples can have.
        """
        site = self._site("join_lookup", name, "fail")
        return self._then(bound_lookup(site, table, on, how, suffix, validate))

    def join_interval(
        self,
        other: Pipeline,
        on: str | Sequence[str] | Mapping[str, str],
        within: tuple[Duration, Duration],
        how: Literal["inner", "left", "right", "full"] = "inner",
        *,
        time: str | tuple[str, str] | None = None,
        suffix: str = "_right",
        max_state_bytes: int | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Pairs of a tuple of this pipeline (the left) and one of another (the right) that have one key, and
        times near each other. Output: key columns, the left's other columns, those of the right.

        Both go on from one source, or from sources that a run merges. The order of their tuples is that of
        `od.union`. A pair comes at the later of its two tuples; a tuple's pairs in the order in which their
        other halves came. What no later tuple can match is forgotten: at the key's next tuple, and at marks
        of the clock where the time of both sides is it.

        Parameters
        ----------
        other : Pipeline
            May be this one.
        on : str, sequence of str, or mapping
            The key: columns that both have, or {column of the left: column of the right}, of one type. Null
            equals nothing.
        within : (least, most)
            Of the right time less the left one: ("0s", "1h") is up to an hour behind the left tuple, ("-1h",
            "0s") before it. Numbers in the column's unit, timedeltas or durations.
        how : "inner", "left", "right" or "full"
            "left": a left tuple that nothing matched is given too, with nulls, when that is settled: by its
            key's next tuple or a mark that is later, or at the end of the stream, by key. "right": such
            right tuples, "full": those of both sides; of a right one the key is shown, and the left's time
            is null as its other columns are.
        time : str or (str, str)
            Time column of both, or of the left and the right: an integer, timestamp or date, ascending in
            each key over both sides. Null is an error at that row. Default: the one timestamp or date that
            both have under one name, beside the key.
        suffix : str
            Put behind the name of a column of the right that the left has too.
        max_state_bytes : int, optional
            Of all keys. More is an error at the row that comes then; it names the bytes and the largest key.
            With several workers it may be another row in each run.
        """
        lane = self._lane("join_interval", other, on, time, suffix)
        return lane.keyed._join_interval(
            lane.sides, within, how, max_state_bytes=max_state_bytes, name=name, on_error=on_error
        )

    def join_asof(
        self,
        other: Pipeline,
        on: str | Sequence[str] | Mapping[str, str],
        tolerance: Duration | None = None,
        *,
        time: str | tuple[str, str] | None = None,
        suffix: str = "_right",
        max_state_bytes: int | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Each tuple of this pipeline with the last one of another that has its key and came before it; with
        nulls where there is none. Output: key columns, the left's other columns, those of the right.

        What comes later in the order of `od.union` is not seen, also where its time is the same.

        Parameters
        ----------
        tolerance : int, str or timedelta, optional
            How much earlier the other tuple may be.
        other, on, time, suffix, max_state_bytes
            As in `join_interval`.
        """
        lane = self._lane("join_asof", other, on, time, suffix)
        return lane.keyed._join_asof(
            lane.sides, tolerance, max_state_bytes=max_state_bytes, name=name, on_error=on_error
        )

    def _lane(
        self,
        op: str,
        other: Any,
        on: str | Sequence[str] | Mapping[str, str],
        time: str | tuple[str, str] | None,
        suffix: str,
    ) -> Lane:
        if not isinstance(other, Joins):
            raise PlanError(
                f"{op}: the other side must be a Pipeline, got {type(other).__name__}; rows of a table that "
                "stays as it is are given by join_lookup, a source is od.Pipeline(schema, source='b')"
            )
        plan, key, sides = united_sides(op, (self._plan, other._plan), named_pairs(on, op), time, suffix)
        return Lane(self.of(plan).key_by(*key), sides)

    # ------------------------------------------------------------------------------------- of the pipeline

    if TYPE_CHECKING:
        _plan: Plan

        @classmethod
        def of(cls, plan: Plan) -> Pipeline: ...

        def _site(self, op: str, name: str | None, on_error: OnError) -> Site: ...

        def _then(self, operator: Operator) -> Pipeline: ...


class Lane(NamedTuple):
    """Both sides of a join in one pipeline."""

    keyed: KeyedPipeline
    sides: Sides


class KeyedJoins:
    """Part of `KeyedPipeline`: joins of one lane that has both sides."""

    def _join_interval(
        self,
        sides: Sides,
        within: tuple[Duration, Duration],
        how: Literal["inner", "left", "right", "full"] = "inner",
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
