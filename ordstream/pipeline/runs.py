"""What starts a pipeline on this machine, `Pipeline.run` and `Pipeline.stream`, and
`Pipeline.explain`, which shows what they do.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast, overload

from ordstream.errors import PlanError, shown
from ordstream.ground.choices import is_one_of
from ordstream.ground.cpus import allowed_cpus
from ordstream.node.run_options import RunOptions, StreamOptions, documented
from ordstream.node.settings import check_known, check_whole, make_settings, whole
from ordstream.operators.arguments import emission, positive_int
from ordstream.plan.explain import explain
from ordstream.plan.final import final
from ordstream.plan.outputs import Output, plans_of, with_outputs
from ordstream.plan.plan import Plan
from ordstream.plan.shedding import check_no_shed
from ordstream.plan.sources import (
    MergeBy,
    check_merge,
    data_of_the_one,
    merge_columns,
    wide_source,
    with_one_source,
)

if TYPE_CHECKING:
    from ordstream.node.node import Stream
    from ordstream.node.outputs import Outputs, OutputStream
    from ordstream.node.result import Result

T = TypeVar("T")

#: Of a run, at most.
MOST_PROCESSES = 1024

#: Options of `run` and `stream` beside those of one node.
OF_PIPELINE = (
    "balance",
    "grouping",
    "grouping_key",
    "idle",
    "merge_by",
    "merge_log",
    "outputs",
    "processes",
)
#: Those of them that say what sends rows to processes, and what these take of the options of a node.
_SPREADS = ("balance", "grouping", "grouping_key", "workers")


class Runs:
    """Part of `Pipeline`."""

    @property
    def plan(self) -> Plan:
        """What the methods so far have made."""
        raise NotImplementedError

    @overload
    def run(
        self,
        data: Any,
        *,
        outputs: Mapping[str, Runs],
        merge_by: MergeBy | None = None,
        idle: Any = None,
        merge_log: Any = None,
        **options: Unpack[RunOptions],
    ) -> Outputs: ...

    @overload
    def run(
        self,
        data: Any,
        *,
        outputs: None = None,
        merge_by: MergeBy | None = None,
        idle: Any = None,
        merge_log: Any = None,
        **options: Unpack[RunOptions],
    ) -> Result: ...

    @documented(stream=False, pipeline=False)
    def run(
        self,
        data: Any,
        *_others: Any,
        outputs: Mapping[str, Runs] | None = None,
        merge_by: MergeBy | None = None,
        idle: Any = None,
        merge_log: Any = None,
        **options: Unpack[RunOptions],
    ) -> Result | Outputs:
        """Run on this machine and return all output.

        Of several sources the result's `merge_log` says in which order they were merged. Columns that no
        operator changes may share memory with `data`, as slices of Arrow's do, and nothing is copied to
        begin with: a source that fills one buffer for batch after batch must give copies, or the run reads
        what comes later.
        """
        from ordstream.node import node  # the compiled core, which writing a pipeline need not load

        _check_alone("run", _others)
        given: dict[str, Any] = {**options}
        check_known(given, OF_PIPELINE)
        if outputs is not None:
            from ordstream.node.outputs import Outputs, OutputStream

            check_whole(given)
            plan, named = self._several(outputs)
            plan, data = fed(plan, data, merge_by, idle, merge_log)
            with self._over(plan, data, {**given, "partial": False}) as stream:
                return Outputs(OutputStream(_logged(stream, data), named))
        plan, data = fed(self.plan, data, merge_by, idle, merge_log)
        processes = processes_of(given, plan)
        if processes == 1:
            return _logged(node.run(plan, data, **given), data)
        from ordstream.fragments import process_stream

        check_whole(given)
        return _logged(process_stream.run(self._of(plan), data, processes, given), data)

    @overload
    def stream(
        self,
        data: Any,
        *,
        outputs: Mapping[str, Runs],
        merge_by: MergeBy | None = None,
        idle: Any = None,
        merge_log: Any = None,
        **options: Unpack[StreamOptions],
    ) -> OutputStream: ...

    @overload
    def stream(
        self,
        data: Any,
        *,
        outputs: None = None,
        merge_by: MergeBy | None = None,
        idle: Any = None,
        merge_log: Any = None,
        **options: Unpack[StreamOptions],
    ) -> Stream: ...

    @documented(stream=True, pipeline=False)
    def stream(
        self,
        data: Any,
        *_others: Any,
        outputs: Mapping[str, Runs] | None = None,
        merge_by: MergeBy | None = None,
        idle: Any = None,
        merge_log: Any = None,
        **options: Unpack[StreamOptions],
    ) -> Stream | OutputStream:
        """Run on this machine: an iterator of output batches as they are ready.

        With `outputs` an output that has nothing to say, or whose batches nobody looks at, holds no other
        one back. The log of several sources grows with the stream: `merge_log=False` keeps none,
        `merge_log.take()` gives and forgets what there is. Memory of `data` is used as it is, as by `run`: a
        source must not write into the buffers of a batch that it has given.
        """
        _check_alone("stream", _others)
        given: dict[str, Any] = {**options}
        check_known(given, OF_PIPELINE)
        if outputs is not None:
            from ordstream.node.outputs import OutputStream

            plan, named = self._several(outputs)
            plan, data = fed(plan, data, merge_by, idle, merge_log)
            return OutputStream(_logged(self._over(plan, data, given), data), named)
        plan, data = fed(self.plan, data, merge_by, idle, merge_log)
        return _logged(self._over(plan, data, given), data)

    def explain(
        self,
        nodes: int | None = None,
        *,
        emit: Literal["updates", "final"] | None = None,
        processes: int | str | None = None,
        **options: Any,
    ) -> str:
        """The stage table as text: what each operator does, its columns, and what limits it.

        Parameters
        ----------
        nodes : int, optional
            Show where the pipeline is cut to run in so many, in Spark.
        emit : "updates" or "final", optional
            As for `run`; "final" shows what is combined early. None: "updates".
        processes : int or "auto", optional
            As for `run`: the cut over so many processes, and what sends rows to them. Not with `nodes`.
        grouping, grouping_key, balance
            As for `run`, with `processes`.
        **options
            Others of a run are checked, and change nothing here.

        Raises
        ------
        PlanError
            `emit="final"`, and the last operator has no answer at the end; `nodes` and `processes`;
            `outputs`; or as a run with these options raises it.
        """
        from ordstream.fragments import fragmenting

        emission("updates" if emit is None else emit, ("updates", "final"), "explain")
        if nodes is not None and processes is not None:
            raise PlanError("explain: nodes= is the cut in Spark, processes= that on this machine: give one")
        if nodes is not None and positive_int(nodes, "explain: nodes") > 1:
            check_no_shed(self.plan, f"nodes={nodes}")
        _check_explained(options)
        shown = final(self.plan) if emit == "final" else self.plan
        if processes is not None and (why := whole_graph(self.plan) if self.plan.is_graph else ""):
            return f"1 process: {why}\n{explain(shown)}"
        given = {"processes": processes, **{name: options.get(name) for name in _SPREADS}}
        several = processes_of(given, self.plan, None)
        if several > 1:
            from ordstream.fragments import explaining

            return explaining.explain(shown, several, given)
        if nodes is not None and (why := whole_graph(shown) if shown.is_graph else ""):
            return f"1 node: {why}\n{explain(shown)}"
        return explain(shown) if nodes is None else fragmenting.explain(shown, nodes)

    def _over(self, plan: Plan, data: Any, given: dict[str, Any]) -> Stream:
        """The plan in this process, or over several."""
        from ordstream.node import node  # as in `run`

        processes = processes_of(given, plan, 5)
        if processes == 1:
            return node.stream(plan, data, **given)
        from ordstream.fragments import process_stream

        # read as a Stream is; what only one node has (markers) it lacks
        return cast("Stream", process_stream.stream(self._of(plan), data, processes, given))

    def _of(self, plan: Plan) -> Runs:
        """A pipeline with the plan."""
        return self if plan is self.plan else cast(Any, type(self)).of(plan)

    def _several(self, outputs: Mapping[str, Runs]) -> tuple[Plan, tuple[Output, ...]]:
        """The plan of several outputs."""
        plan, named = with_outputs(plans_of(outputs))
        if not set(self.plan.all_sources) <= set(plan.all_sources):
            raise PlanError("outputs: none of them goes on from the source of the pipeline that is run")
        return plan, named


def _check_alone(method: str, others: tuple[Any, ...]) -> None:
    """PlanError where something stands behind the data that is no option by its name."""
    if others:
        raise PlanError(
            f"{method} takes the data, and options by their names, {method}(data, workers=4); got "
            f"{shown(others[0], 80)} behind the data"
        )


def _check_explained(options: Mapping[str, Any]) -> None:
    """PlanError for what is no option of a run, or has a wrong value, or makes another plan."""
    check_known(options, OF_PIPELINE)
    if options.get("outputs") is not None:
        raise PlanError("explain shows one pipeline: leave outputs= out, and explain each of them")
    make_settings({name: value for name, value in options.items() if name not in OF_PIPELINE})


def fed(
    plan: Plan, data: Any, merge_by: MergeBy | None, idle: Any = None, merge_log: Any = None
) -> tuple[Plan, Any]:
    """The plan with one source, and what feeds it.

    Raises
    ------
    PlanError
        `merge_by` is given for one source, or not for several; the data are not those of the sources.
    """
    check_merge(plan, merge_by, idle=idle, merge_log=merge_log)
    if merge_by is None:
        return plan, data_of_the_one(plan.name, data)
    from ordstream.node.merging import MergedSources

    one, (ways, wide) = with_one_source(plan, merge_by), wide_source(plan, merge_by)
    return one, MergedSources(data, ways, wide, merge_columns(plan, merge_by), idle, merge_log)


def _logged(made: T, data: Any) -> T:
    """A stream or result that knows what the merge of its sources has chosen."""
    cast(Any, made).merge_log = getattr(data, "log", None)
    return made


def processes_of(options: dict[str, Any], plan: Plan, level: int | None = 4) -> int:
    """Take out `processes`: how many. A graph that can't be cut runs in this one, and what was to choose
    nodes is left out, with a warning (`level`: of the user's line; None: without).
    """
    processes = options.pop("processes", None)
    if processes is None:
        for name in ("grouping", "grouping_key", "balance"):
            if options.pop(name, None) is not None:
                raise PlanError(f"{name} is for a run over several processes: give processes= too")
        return 1
    several = (
        allowed_cpus()
        if is_one_of(processes, ("auto",))
        else whole("processes", processes, 1, MOST_PROCESSES, ' or "auto"')
    )
    why = whole_graph(plan) if plan.is_graph and several > 1 else ""
    if several == 1:
        from ordstream.fragments.grouping import check_of_one

        check_of_one(options, plan)
    if several == 1 or why:  # there is nothing to choose
        for name in ("grouping", "grouping_key", "balance"):
            if options.pop(name, None) is not None and why and level:
                warnings.warn(
                    f"processes={several}: the graph runs in one node ({why}): {name}= does nothing",
                    RuntimeWarning,
                    stacklevel=level,
                )
        return 1
    return several


def whole_graph(plan: Plan) -> str:
    """Why a graph runs in one node; "": it is cut."""
    from ordstream.fragments.fragmenting import fragments_of

    try:
        fragments_of(plan)
    except PlanError as error:
        return str(error)
    return ""
