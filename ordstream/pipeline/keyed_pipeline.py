"""KeyedPipeline: the operators that keep one state per key, and only those.

`key_by` returns it; the next method is the operator, and gives a `Pipeline` again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ordstream.errors import NoSuchMethod, PlanError
from ordstream.expressions.expr import Expr
from ordstream.ground.choices import is_one_of
from ordstream.ground.duration import Duration
from ordstream.operators.aggregation import Aggregation
from ordstream.operators.arguments import MOST_BUCKETS, Columns, flat, key_columns, positive_int
from ordstream.operators.best_rows import BestRows
from ordstream.operators.error_policy import OnError
from ordstream.operators.operator import Operator, Site
from ordstream.operators.pair_up import PairUp
from ordstream.operators.partition import EqualRanges, Ranges
from ordstream.operators.preceding import Preceding
from ordstream.operators.regression import Regression
from ordstream.operators.sessionize import Sessionize
from ordstream.operators.top_values import TopValues
from ordstream.pipeline.joins import KeyedJoins
from ordstream.pipeline.stateful import StatefulOperators
from ordstream.pipeline.synonyms import IN_FRONT, of_a_key

if TYPE_CHECKING:
    from ordstream.pipeline.pipeline import Pipeline

#: Operators that may follow `key_by`.
KEYED = (
    "sessionize, count, scan, aggregate, lag, lead, diff, head, tail, cum_sum (_count, _min, _max, _mean), "
    "forward_fill, pair_up, preceding, top_k, top_values, regression, assert_ordered, window or process"
)


class KeyedPipeline(KeyedJoins, StatefulOperators):
    """What `key_by` returns: it waits for the operator that keeps one state per key. Each takes `name` and
    `on_error`, as those of a `Pipeline`.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        columns: Sequence[str],
        buckets: int | None,
        partition: str | Ranges | EqualRanges,
    ) -> None:
        self._pipeline, self._plan = pipeline, pipeline.plan
        columns = flat(columns)
        where = f"key_by({', '.join(map(str, columns))})"
        self._key = key_columns(self._schema, columns, where)
        self._buckets = None if buckets is None else positive_int(buckets, f"{where}: buckets", MOST_BUCKETS)
        if isinstance(partition, Ranges | EqualRanges):
            self._partition = partition.bind(self._schema, self._key, where)
        elif is_one_of(partition, ("hash",)):
            self._partition = "hash"
        else:
            raise PlanError(
                f"{where}: partition must be 'hash', od.ranges or od.equal_ranges, got {partition!r}"
            )

    def sessionize(
        self,
        time: str,
        timeout: Duration,
        collect: Columns | None = None,
        *,
        aggregate: Mapping[str, Aggregation] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Sessions per key: runs of tuples whose times follow each other within a timeout.

        A tuple whose time is more than `timeout` after the key's previous tuple closes the session: it is
        emitted then, and the tuple opens the next one. A gap of exactly `timeout` does not split. At the end
        of the stream the open sessions are emitted by ascending key; at a time punctuation those whose last
        time is more than `timeout` before it, by (end, key). Output: key columns, start, end (times of the
        first and the last tuple), count, then one list per collected column, then the aggregates.

        Parameters
        ----------
        time : str
            An integer, timestamp or date column, ascending in each key: null is an error at that row, and so
            is a time before the last one of the key's open session. A key whose session a time punctuation
            closed is forgotten.
        timeout : int, str or timedelta
            At least 0, in the column's unit.
        collect : mapping of output name to column, or sequence of columns
            Values to keep, in order. Null is an error at that row: filter first.
        aggregate : mapping of output name to aggregation, optional
            Values over the tuples of the session, such as `od.max("ts", where=od.col("kind") == 1)`. A
            session with aggregates and no lists has a state of fixed size.
        """
        site = self._site("sessionize", name, on_error)

        def bind(site: Site, _: Any, aggregations: Mapping[str, Any]) -> Operator:
            return Sessionize.bind(site, time, timeout, collect, aggregations)

        if not isinstance(aggregate, Mapping | None):
            raise PlanError(
                f"{site.name}: aggregate is a mapping, such as aggregate={{'n': od.count()}}, got "
                f"{aggregate!r}"
            )
        return self._aggregated(site, bind, (), aggregate or {})

    def pair_up(
        self,
        column: str,
        *,
        carry: Sequence[str] = (),
        left: str = "left",
        right: str = "right",
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Each new value of a key with every value that the key had before: `od.pairs` without waiting for
        the end of a group.

        The state of a key is the list of its distinct values, in order of arrival. A value that is already
        there gives nothing. A new value v gives, for each earlier value x in that order, the carried columns
        of this tuple, then the smaller and the larger of x and v. Output: carried columns, left, right.
        Nothing is emitted at the end of the stream.

        Parameters
        ----------
        column : str
            A number, date or time. Null is an error at that row.
        carry : sequence of str
            Input columns to repeat in front of each pair.
        left, right : str
            Names of the smaller and the larger value.
        """
        return self._then(PairUp.bind(self._site("pair_up", name, on_error), column, carry, left, right))

    def preceding(
        self,
        n: int,
        columns: Columns,
        *,
        carry: Columns = (),
        time: str | None = None,
        within: Duration | None = None,
        when: Expr | None = None,
        where: Expr | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """The last tuples of a key, seen from some of its tuples.

        The state of a key is a ring of its last `n` tuples, of any kind. A tuple for which `when` is true
        looks at the ring, oldest first, and gives one output for each entry that is not older than `within`
        and for which `where` was true; then every tuple is put into the ring. Output: the carried columns of
        the looking tuple, then `columns` of the entry. Nothing is emitted at the end of the stream.

        `preceding(5, {"viewed": "item"}, carry={"bought": "item"}, time="ts", within=864_000,
        when=od.col("is_purchase"))`: what was looked at, at most ten days before each purchase, among the
        customer's last five clicks.

        Parameters
        ----------
        n : int
            Length of the ring, 1 to 1024.
        columns : mapping of output name to column, or sequence of columns
            Of an entry: numbers, bools, dates and times. Nulls are kept.
        carry : mapping of output name to column, or sequence of columns
            Of the looking tuple; any type.
        time : str
            The time column of `within`: an integer, timestamp or date, ascending in each key: null is an
            error at that row, and so is a time before that of the key's row before.
        within : int, str or timedelta, optional
            Entries with a time of at least this tuple's time - within count; in the column's unit, at least
            0.
        when, where : Expr, optional
            Boolean expressions over the looking tuple and over the tuple of an entry. Default: always true.
        """
        site = self._site("preceding", name, on_error)
        return self._then(
            Preceding.bind(site, n, columns, carry=carry, time=time, within=within, when=when, where=where)
        )

    def top_k(
        self,
        k: int,
        by: str,
        *,
        descending: bool = True,
        emit: Literal["updates", "final"] = "final",
        rank: str | None = None,
        window: None = None,
        key: None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """The `k` tuples of each key with the largest `by`, best first; of equal ones those that came first.

        The state of a key is these tuples. Output: input columns, then the rank (from 1) where it is asked
        for. The lists are emitted at the end of the stream, by ascending key.

        `Pipeline.top_k` ranks the latest tuple of each of its keys; here every tuple counts.

        Parameters
        ----------
        k : int
            1 to 1,048,576.
        by : str
            A number, date or time, no key column. Null is an error at that row; NaN comes last.
        descending : bool
            False: those with the smallest `by`, smallest first.
        emit : "updates" or "final"
            "updates": also an output for each tuple that is among the `k` best of its key when it comes.
        rank : str, optional
            Name of the output column; default: "rank" with emit="updates", none with "final".
        window, key : None
            They are for `Pipeline.top_k`: here the key is that of `key_by`, and lists end with the stream.
        """
        site = self._site("top_k", name, on_error)
        others: tuple[Any, ...] = (window, key)
        if any(one is not None for one in others):
            raise PlanError(
                f"{site.name}: behind key_by top_k takes no window and no key: it lists the best tuples of "
                "each key at the end of the stream. To rank keys in windows leave key_by out, "
                ".top_k(k, by, key=..., window=...)"
            )
        return self._then(BestRows.bind(site, k, by, descending=descending, emit=emit, rank=rank))

    def top_values(
        self,
        column: str,
        k: int,
        *,
        count: str = "count",
        rank: str = "rank",
        emit: Literal["updates", "final"] = "updates",
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """The `k` most frequent values of a column, per key; ties by ascending value.

        The state of a key is a count per value (null is a value) and the list of the `k` best. Output: key
        columns, the value, its count, its rank (from 1).

        Parameters
        ----------
        column : str
            Of a type that can be a key.
        k : int
            At least 1.
        count, rank : str
            Names of the output columns.
        emit : "updates" or "final"
            "updates": an output for each tuple whose value is among the `k` best after it, and at the end of
            the stream, by ascending key, the whole list of each key; "final": only these lists.
        """
        return self._then(
            TopValues.bind(self._site("top_values", name, on_error), column, k, count, rank, emit)
        )

    def regression(
        self,
        x: str,
        y: str,
        *,
        emit: Literal["updates", "every_tuple", "final"] = "updates",
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Least squares line of the total of `y` at each `x`, per key.

        Tuples with the same `x` make one point (x, sum of y). So `x` must ascend in each key. The sums are
        exact: int64, and an overflow is an error at that row; slope and intercept are quotients of exact
        128-bit integers, rounded at the end. Output: key columns, x (of the last point), n (points), slope
        and intercept (float64), flat_or_declining (slope <= 0, decided on the integers).

        Parameters
        ----------
        x : str
            An integer, date or time. Null is an error at that row, and so is a value below that of the key's
            row before. Its squares are summed: a timestamp of today overflows, days since a start
            (`(od.col("ts") - start).dt.total_days()`) do not.
        y : str
            An integer, such as an amount in cents. Null is an error at that row.
        emit : "updates", "every_tuple" or "final"
            "updates": when `x` changes, the line of the points before it, if they are two or more;
            "every_tuple": an output per tuple, the last point as it is by then (slope, intercept and
            flat_or_declining are null for a single point). All three: at the end of the stream the line of
            each key with two or more points, by ascending key.
        """
        return self._then(Regression.bind(self._site("regression", name, on_error), x, y, emit))

    def _then(self, operator: Operator) -> Pipeline:
        return self._pipeline.of(self._plan.then(operator))

    def __repr__(self) -> str:
        keys = ", ".join(self._schema.names[index] for index in self._key)
        return f"<KeyedPipeline by {keys}; next: {KEYED}>"

    if not TYPE_CHECKING:  # for a type checker an unknown attribute is a mistake

        def __getattr__(self, attribute: str) -> NoReturn:
            if not attribute.startswith("_") and hasattr(type(self._pipeline), attribute):
                where = IN_FRONT.get(
                    attribute, "other operators come before key_by or after the keyed operator"
                )
                raise NoSuchMethod(f"key_by must be followed by {KEYED}, not by {attribute!r}; {where}")
            where = of_a_key(attribute, dir(type(self)))
            raise AttributeError(f"a KeyedPipeline has no {attribute!r}{where}", name=attribute, obj=self)
