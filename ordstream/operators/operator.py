"""Operator: what every operator of a plan knows of itself.

An operator is a frozen dataclass in a file of its own. Its `bind` makes it: it checks what the user gave
against the schema that arrives. The operator then answers every question that others ask: what it reads and
passes on, what it says in `explain`, what it does at the end of the stream, which kernel runs it, which
class is its meaning. Nobody else chooses by an operator's name or class (tests/unit/test_architecture.py
checks that). A new operator is one file here, one kernel file of the same name in `_core/kernels`, the
method that users call (in `ordstream.pipeline`: its signature and help are written for them), and one row of
the property tests' table.

An operator is stateless ("SL"), keeps one state per key ("PS", partitioned stateful) or one state in all
("SF", stateful, under the empty key); ordered paper, section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pyarrow as pa

from ordstream.errors import CheckpointError, PlanError, SchemaError
from ordstream.expressions.bound import BoundExpr
from ordstream.ground.duration import written_span
from ordstream.ground.packed_types import as_kept
from ordstream.ground.types import unique_names

if TYPE_CHECKING:
    from ordstream.operators.clocks import Clock
    from ordstream.operators.halves import Halves
    from ordstream.operators.row_clock import RowClock
    from ordstream.reference.base import Row, SerialOperator

Kind = Literal["SL", "PS", "SF"]
AdaptState = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True)
class Site:
    """Where an operator is put, for its `bind`.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the tuples that arrive.
    name : str
        The operator's, unique in the plan; error messages begin with it.
    key : tuple of int
        Key columns; (): one state in all, or none.
    partition, buckets : see `Operator`
    on_error : "fail" or "skip"
    before : sequence of Operator
        The operators in front, in order.
    rejects, retries, unnamed : see `Operator`
    """

    schema: pa.Schema
    name: str
    key: tuple[int, ...] = ()
    partition: Any = "hash"
    buckets: int | None = None
    on_error: Literal["fail", "skip"] = "fail"
    before: Sequence[Operator] = ()
    rejects: bool = False
    retries: int = 0
    unnamed: bool = False

    def fields(self, output: pa.Schema) -> dict[str, Any]:
        """The fields that every operator has, for its constructor."""
        return {
            "name": self.name,
            "input": self.schema,
            "output": output,
            "key": self.key,
            "partition": self.partition,
            "buckets": self.buckets,
            "on_error": self.on_error,
            "rejects": self.rejects,
            "retries": self.retries,
            "unnamed": self.unnamed,
        }

    def behind_key(self, fields: Iterable[pa.Field]) -> pa.Schema:
        """An output schema: the key columns, then these.

        Raises
        ------
        SchemaError
            Two columns of one name.
        """
        return self._named([self.schema.field(index) for index in self.key], fields, "the key columns")

    def behind_input(self, fields: Iterable[pa.Field]) -> pa.Schema:
        """An output schema: the input columns, then these. Raises as `behind_key`."""
        return self._named(list(self.schema), fields, "the input's columns")

    def _named(self, first: list[pa.Field], fields: Iterable[pa.Field], what: str) -> pa.Schema:
        there, added = {field.name for field in first}, list(fields)
        if taken := sorted({field.name for field in added if field.name in there}):
            raise SchemaError(
                f"{self.name}: duplicate column name(s) {', '.join(map(repr, taken))}: {what} are in the "
                "output, too; give what is added another name, or drop or rename the column before"
            )
        return named_once([*first, *added], self.name)


def named_once(fields: Sequence[pa.Field], where: str) -> pa.Schema:
    """A schema of these fields; SchemaError where two have one name."""
    unique_names([field.name for field in fields], where)
    return pa.schema(fields)


@dataclass(frozen=True, eq=False, kw_only=True)
class Operator:
    """One operator of a plan, checked and typed. Subclasses add their parameters as fields; columns are
    indexes into `input`.

    Attributes
    ----------
    name : str
        Unique in the plan; used in errors and reports.
    input, output : pyarrow.Schema
    key : tuple of int
        Key columns (PS), else ().
    partition : "hash", Ranges or EqualRanges
        How keys are spread over buckets (PS). Bounds are storage values of the key's type.
    buckets : int or None
        Number of buckets asked for; None: the physical plan chooses.
    on_error : "fail" or "skip"
    rejects : bool
        Rows that it skips leave by a second output, which `second` makes; steps of a flush are not skipped.
    second : Operator or None
        Where it rejects: the operator that a plan takes for the second output.
    retries : int
        How often its function is called again for a row for which it raised.
    unnamed : bool
        Nobody has named it: its name is the operation and its position.
    """

    name: str
    input: pa.Schema
    output: pa.Schema
    key: tuple[int, ...] = ()
    partition: Any = "hash"
    buckets: int | None = None
    on_error: Literal["fail", "skip"] = "fail"
    rejects: bool = False
    second: Operator | None = None
    retries: int = 0
    unnamed: bool = False

    #: What the operator is called in messages and in `explain`.
    op: ClassVar[str] = ""
    #: Keeps a state: per key where there is one.
    stateful: ClassVar[bool] = False
    #: At most one output per input tuple: the tuple's order tag is the output's.
    one_to_one: ClassVar[bool] = False
    #: Runs a Python function of the user's, and so takes the GIL once per chunk.
    is_python: ClassVar[bool] = False
    #: Runs a function of the user's, in Python or compiled: what a tuple costs depends on its values.
    runs_user_code: ClassVar[bool] = False
    #: Drops tuples under overload.
    sheds: ClassVar[bool] = False
    #: A tuple's time is not later than the clock's when it leaves, nor earlier than a mark before it.
    keeps_time: ClassVar[bool] = True
    #: Goes without the clock that it wants where other operators, or the run, want another.
    yields_clock: ClassVar[bool] = False
    #: Looks at tuples' serials, which are those of the source in a run of one node only.
    reads_serial: ClassVar[bool] = False
    #: May have several outputs for one tuple by itself, without a state.
    fans_out: ClassVar[bool] = False
    #: What it passes of columns (`columns_passed_from`) is in each of its outputs what the tuple of the same
    #: serial has, and its kernel does without the values of those that it does not read (`columns_read`).
    passes_unread: ClassVar[bool] = False
    #: Has several inputs or outputs: moves rows between lanes, and takes whole units.
    takes_units: ClassVar[bool] = False
    #: Rows that it can't process may leave by a second output.
    may_reject: ClassVar[bool] = False
    #: The second output tells the error of each row.
    tells_errors: ClassVar[bool] = True
    #: Takes, of its input, what another operator with the same input rejected: that one's second output.
    takes_rejections: ClassVar[bool] = False
    #: A row for which its function raised may be tried again.
    may_retry: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.rejects and not self.may_reject:
            raise PlanError(
                f"{self.name}: on_error='dead_letter' is for operators that call a Python function: filter, "
                "map, flat_map, map_batches, inspect and process, without compiled=True; use 'skip', which "
                "counts and shows what it drops"
            )
        if self.retries and not self.may_retry:
            raise PlanError(
                f"{self.name}: od.retry is for operators that call a Python function: what this one could "
                "not do once it can't do a second time"
            )

    @property
    def rejections_of(self) -> str:
        """Of an operator that `takes_rejections`: the name of the one that rejects; else ""."""
        return ""

    def shown(self) -> str:
        """`describe` for a reader, who wants "5m" where a stored state has always told units."""
        return self.describe()

    def spans_of(self, column: int) -> Callable[[int], str]:
        """How `shown` writes spans of a time column."""
        return partial(written_span, field=self.input.field(column))

    def shown_input(self, row: dict[str, Any]) -> dict[str, Any]:
        """What an error shows of a row of the input: without columns that no user made."""
        return row

    def fails_by_state(self, message: str, row: Row) -> str | None:
        """What to say of a row that fails only together with those before it; None: what the kernel says.

        Parameters
        ----------
        message : str
            The kernel's.
        row : sequence
            Storage values.
        """
        return None

    @property
    def kind(self) -> Kind:
        """ "SL", "PS" or "SF"."""
        if not self.stateful:
            return "SL"
        return "PS" if self.key else "SF"

    @property
    def max_workers(self) -> int | None:
        """Its own bound on workers, whatever the node has; None: none."""
        return 1 if self.is_python and not self.leaves_gil else None

    @property
    def leaves_gil(self) -> bool:
        """A Python function that spends its time outside the GIL."""
        return False

    def timing_rows(self, clock: RowClock) -> Self | None:
        """The same with its function's calls timed; None: no function is called just once per row."""
        return None

    def timing_calls(self, took: Callable[[int, float], None]) -> Self | None:
        """The same with `took` told the rows and seconds of each call of a function that is called with many
        rows; None: there is none.
        """
        return None

    @property
    def can_snapshot(self) -> bool:
        """Its state, if any, can be written down: needed for checkpoints, migration and cuts."""
        return True

    # ------------------------------------------------------------------------ several inputs and outputs

    @property
    def ports(self) -> int:
        """How many streams of rows leave it; the rows of all have the schema `output`."""
        return 1

    @property
    def places(self) -> int:
        """How many streams of rows it takes; those of the first have the schema `input`."""
        return 1

    def lanes_taken(self) -> tuple[int, ...]:
        """The lanes of its inputs, once it is `laid`."""
        raise NotImplementedError(f"{type(self).__name__} has one input and one output")

    def lanes_made(self) -> tuple[int, ...]:
        """The lanes of its outputs, once it is `laid`."""
        raise NotImplementedError(f"{type(self).__name__} has one input and one output")

    def laid(self, lane: int, lanes: Sequence[int], point: int, keep: int) -> Self:
        """The operator, of several ports or places, in a line with lanes (`ordstream.plan.lanes`).

        Parameters
        ----------
        lane : int
            Of its one input; with several places: of its output.
        lanes : sequence of int
            Of each port (-1: nobody takes it), or of each place.
        point : int
            Number of the branch point: of this one, or of that by which rows are put in order.
        keep : int
            With several places: number of the innermost branch point that a union behind asks for; -1: none.
        """
        raise NotImplementedError(f"{type(self).__name__} has one input and one output")

    # ------------------------------------------------------------------------------------------ what runs it

    def kernel(self) -> Any:
        """The kernel that runs it (`ordstream._core.ground.kernel.KernelOwner`): owns all that it needs, and
        must outlive the run.

        Raises
        ------
        ImportError, PlanError
            A function that is to be compiled: Numba is missing, or it does not compile.
        """
        raise NotImplementedError(f"{type(self).__name__} has no kernel")

    def reference(self) -> SerialOperator:
        """What it means, one tuple at a time, with an empty state."""
        raise NotImplementedError(f"{type(self).__name__} has no reference")

    def state_schema(self) -> pa.Schema | None:
        """Columns of its exported state: the key columns, then the state's. One row per key, or several
        that differ in the columns behind it (`state_order`). None: it has no state.

        Raises
        ------
        PlanError
            Its kernel can't export its state yet.
        """
        if not self.stateful:
            return None
        raise PlanError(f"operator {self.name!r} ({self.op}): its state can't be exported yet")

    def state_order(self) -> int:
        """How many leading columns of `state_schema` tell its rows apart: by these the rows of a stored
        state are sorted. Those of the key; more where a key has several rows.
        """
        return len(self.key)

    def state_identity(self) -> dict[str, str]:
        """What a stored state must have in common with the operator that goes on from it, beside the
        columns (`state_schema`). A difference is refused with both texts.
        """
        return {**self.operator_and_key(), "parameters": self.describe()}

    def operator_and_key(self) -> dict[str, str]:
        """What every `state_identity` begins with."""
        key = ", ".join(f"{self.input.field(i).name}: {self.input.field(i).type}" for i in self.key)
        return {"operator": self.op, "key": key or "none"}

    def adapt_state(self, identity: Mapping[str, str], schema: pa.Schema) -> AdaptState:
        """How rows of a stored state become rows of `state_schema`, so that this operator can go on from
        them.

        Unless an operator knows better, the stored state must be its own in every item and column.

        Parameters
        ----------
        identity : mapping of str to str
            `state_identity` of the operator that left the state.
        schema : pyarrow.Schema
            Of its rows.

        Returns
        -------
        callable
            Stored batch -> batch of `state_schema`; no row is copied.

        Raises
        ------
        CheckpointError
            It is the state of another operator: says what is stored and what the pipeline has, item by item.
        PlanError
            As `state_schema`.
        """
        wanted = self.state_schema()
        mine = {} if wanted is None else self.state_identity()
        differences = [
            f"{item}: stored {identity.get(item, 'nothing')}, the pipeline has {mine.get(item, 'nothing')}"
            for item in [*mine, *(item for item in identity if item not in mine)]
            if mine.get(item) != identity.get(item)
        ]
        columns = [] if wanted is None else [f"{field.name}: {field.type}" for field in wanted]
        types = [as_kept(one.type, field.type) for one, field in zip(schema, wanted or (), strict=False)]
        types += schema.types[len(types) :]
        stored = [f"{name}: {type_}" for name, type_ in zip(schema.names, types, strict=True)]
        differences += [
            f"column {place}: stored {one or 'nothing'}, the pipeline has {other or 'nothing'}"
            for place, (one, other) in enumerate(zip_longest(stored, columns), start=1)
            if one != other
        ]
        if differences or wanted is None:
            first = f"operator {self.name!r} can't go on from the stored state, which is another's:"
            last = "Run the pipeline that stored it, or begin anew with another folder"
            raise CheckpointError("\n  ".join([first, *differences, last]))
        return lambda batch: pa.RecordBatch.from_arrays(
            [
                column if column.type.equals(field.type) else column.cast(field.type)
                for column, field in zip(batch.columns, wanted, strict=True)
            ],
            schema=wanted,
        )

    # ------------------------------------------------------------------------------------------ columns

    def columns_read(self) -> set[int]:
        """Input columns whose values the operator itself looks at (passing one through is not looking)."""
        return set(range(len(self.input)))

    def columns_passed(self) -> dict[int, int]:
        """Output column -> input column, for output columns that are input columns unchanged."""
        return {}

    def column_made(self, column: int) -> int | BoundExpr | None:
        """What an output column is: an input column unchanged, what computes it row by row, or neither."""
        return self.columns_passed().get(column)

    def columns_passed_from(self, place: int) -> dict[int, int]:
        """`columns_passed` as to one of its inputs."""
        return self.columns_passed()

    def columns_absent_from(self, place: int) -> set[int]:
        """Output columns that are null in each row that one of its inputs makes."""
        return set()

    def key_passed(self) -> dict[int, int]:
        """`columns_passed` of an operator whose output begins with its key."""
        return dict(enumerate(self.key))

    def input_passed(self) -> dict[int, int]:
        """`columns_passed` of an operator whose output begins with its input."""
        return {index: index for index in range(len(self.input))}

    # ------------------------------------------------------------------------------------------ what it says

    def describe(self) -> str:
        """One line: what it does, with its parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no description")

    def notes(self, behind: Sequence[Operator] = ()) -> list[str]:
        """Further lines of `explain`: what limits it. `behind`: the operators behind it."""
        notes = []
        if self.kind == "PS":
            buckets = "chosen by the node" if self.buckets is None else str(self.buckets)
            notes.append(f"partition {self.partition}, buckets {buckets}")
        if self.is_python and not self.leaves_gil:
            notes.append("Python function: takes the GIL, one worker at a time")
        if not self.can_snapshot:
            notes.append("state not declared: cannot be snapshotted, migrated or cut (declare it, or use "
                         "od.codec)")  # fmt: skip
        notes += self.own_notes()
        if self.retries:
            notes.append(f"on error: up to {self.retries} more tries")
        if self.on_error != "fail":
            notes.append(f"on error: {'to the second output' if self.rejects else self.on_error}")
        return notes

    def own_notes(self) -> list[str]:
        """What only this operator has to say in `notes`."""
        return []

    def in_every_node(self) -> list[str]:
        """What it does early in each of several nodes, for `explain`."""
        return []

    @property
    def by_key(self) -> str:
        """ " by a, b", or nothing without a key."""
        return f" by {self.columns_named(self.key)}" if self.key else ""

    def columns_named(self, columns: Iterable[int]) -> str:
        """Names of input columns, with commas."""
        names = self.input.names
        return ", ".join(names[index] for index in columns)

    # ------------------------------------------------------------------------ the end of the stream

    def final(self) -> Operator:
        """The operator that emits at the end of the stream only, as the last one of a plan run with
        emit="final".

        Raises
        ------
        PlanError
            It has no answer at the end.
        """
        raise PlanError(
            f"emit='final': operator {self.name!r} ({self.op}) has no answer at the end of the stream; the "
            "last operator must be one that takes emit=, such as count, aggregate or top_k. Run with "
            "emit='updates', or leave emit out"
        )

    @property
    def only_at_end(self) -> bool:
        """It emits at the end of the stream only."""
        return False

    @property
    def emits_at_end(self) -> bool:
        """The end of the stream may make it emit."""
        from ordstream.reference.base import SerialOperator

        return self.stateful and type(self.reference()).flush is not SerialOperator.flush

    def halves(self) -> Halves | None:
        """A part per node and a merge (`ordstream.operators.halves`); None: not known to be exact."""
        return None

    def merges(self) -> bool:
        """It is a half that merges what parts gave, in any order."""
        return False

    def is_part(self) -> bool:
        """It is a half that takes the rows of one node."""
        return False

    def clock_wanted(self) -> tuple[Clock, int] | None:
        """(clock, period): it wants time punctuations at multiples of the period in that clock's unit."""
        return None

    def clock_input(self) -> int | None:
        """The input column with the time of the clock that it wants; None: the window in front has it."""
        return None

    def only_forgets(self) -> bool:
        """Marks of the clock that it wants do not make it emit, and may come later."""
        return False

    def with_clock(self, clock: Clock | None) -> Self:
        """The operator, which wants a clock, with another one; None: without one."""
        raise PlanError(f"operator {self.name!r} ({self.op}) takes the clock of one source only")

    def clock_made(self) -> tuple[int, Clock] | None:
        """(output column, clock): a clock that the operator moves, whose time that column has."""
        return None

    def clock_of(self, column: int) -> Clock | None:
        """The clock, moved by the operator, whose time an output column has."""
        made = self.clock_made()
        return None if made is None or made[0] != column else made[1]

    @property
    def marks_leave(self) -> bool:
        """It moves a clock that operators in other nodes look at."""
        return False

    def with_marks_left(self, period: int) -> Self:
        """The operator, which moves a clock, where operators in other nodes want marks of it."""
        raise PlanError(f"operator {self.name!r} ({self.op}) moves no clock")

    def with_marks(self, period: int | None) -> Self:
        """The operator, which moves a clock, with marks at the multiples of a period; None: without."""
        raise PlanError(f"operator {self.name!r} ({self.op}) moves no clock")

    # ---------------------------------------------------------------------- what neighbours may ask
    # (`ordstream.plan.rewrites`)

    def null_tests(self) -> BoundExpr | None:
        """The condition of a filter that tests nothing but nulls, and so cannot fail; None: it is no
        such filter.
        """
        return None

    def grows(self) -> tuple[int | None, frozenset[int]] | None:
        """(output column, output columns): the first never falls among tuples that are equal in the
        others; None in its place: there are no two such tuples. None: not known.
        """
        return None

    def given_growing(self, growing: tuple[int | None, frozenset[int]]) -> Self:
        """The operator as it may be where `growing` is what the one in front says of its output."""
        return self

    def best_wanted(self) -> tuple[int, int] | None:
        """(column, k): of its input it needs only the k rows with the largest value there, ties by the
        columns before it in order.
        """
        return None

    def keeping_best(self, column: int, k: int) -> Self | None:
        """The operator handing over, at the end, only the best rows of each bucket by this output
        column; None: it can't.
        """
        return None

    def given_needed(self, values: frozenset[int], nulls: frozenset[int]) -> Self:
        """The operator without columns that nobody sees.

        Parameters
        ----------
        values, nulls : frozenset of int
            Output columns whose values are needed, and those of which at least is needed which values are
            null.
        """
        return self

    def given_dropped(self, behind: Operator) -> Self:
        """The operator without rows that the one directly behind drops, where nobody sees the difference."""
        return self

    def changed(self, **fields: Any) -> Self:
        """The same with other fields."""
        return replace(self, **fields)
