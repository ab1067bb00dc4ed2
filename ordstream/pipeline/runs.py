"""What starts a pipeline on this machine: `Pipeline.run` and `Pipeline.stream`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from ordstream.errors import PlanError
from ordstream.ground.cpus import allowed_cpus
from ordstream.node.run_options import RunOptions, StreamOptions, documented
from ordstream.node.settings import whole
from ordstream.plan.outputs import Output, with_outputs
from ordstream.plan.plan import Plan

if TYPE_CHECKING:
    from ordstream.node.node import Stream
    from ordstream.node.outputs import Outputs, OutputStream
    from ordstream.node.result import Result


class Runs:
    """Part of `Pipeline`."""

    @property
    def plan(self) -> Plan:
        """What the methods so far have made."""
        raise NotImplementedError

    @overload
    def run(self, data: Any, *, outputs: Mapping[str, Runs], **options: Unpack[RunOptions]) -> Outputs: ...

    @overload
    def run(self, data: Any, *, outputs: None = None, **options: Unpack[RunOptions]) -> Result: ...

    @documented(stream=False, pipeline=False)
    def run(
        self, data: Any, *, outputs: Mapping[str, Runs] | None = None, **options: Unpack[RunOptions]
    ) -> Result | Outputs:
        """Run on this machine and return all output.

        With `outputs`, a mapping of names to pipelines that go on from one source with this one, all of them
        run at once, and the result is a mapping of each name to its table (`ordstream.node.outputs`).
        """
        from ordstream.node import node  # the compiled core, which writing a pipeline need not load

        given: dict[str, Any] = {**options}
        processes = processes_of(given, outputs is not None or self.plan.is_graph)
        if outputs is not None:
            from ordstream.node.outputs import Outputs, OutputStream

            node.check_whole(given)
            plan, named = self._several(outputs)
            with node.stream(plan, data, partial=False, **given) as stream:
                return Outputs(OutputStream(stream, named))
        if processes == 1:
            return node.run(self, data, **given)
        from ordstream.fragments import process_stream

        node.check_whole(given)
        return process_stream.run(self, data, processes, given)

    @overload
    def stream(
        self, data: Any, *, outputs: Mapping[str, Runs], **options: Unpack[StreamOptions]
    ) -> OutputStream: ...

    @overload
    def stream(self, data: Any, *, outputs: None = None, **options: Unpack[StreamOptions]) -> Stream: ...

    @documented(stream=True, pipeline=False)
    def stream(
        self, data: Any, *, outputs: Mapping[str, Runs] | None = None, **options: Unpack[StreamOptions]
    ) -> Stream | OutputStream:
        """Run on this machine: an iterator of output batches as they are ready.

        With `outputs`, as for `run`: one iterator of (name, batch). An output that has nothing to say, or
        whose batches nobody looks at, holds no other one back.
        """
        from ordstream.node import node  # as in `run`

        given: dict[str, Any] = {**options}
        processes = processes_of(given, outputs is not None or self.plan.is_graph)
        if outputs is not None:
            from ordstream.node.outputs import OutputStream

            plan, named = self._several(outputs)
            return OutputStream(node.stream(plan, data, **given), named)
        if processes == 1:
            return node.stream(self, data, **given)
        from ordstream.fragments import process_stream

        # read as a Stream is; what only one node has (markers, shed) it lacks
        return cast("Stream", process_stream.stream(self, data, processes, given))

    def _several(self, outputs: Mapping[str, Runs]) -> tuple[Plan, tuple[Output, ...]]:
        """The plan of several outputs."""
        given: Any = outputs
        if not isinstance(given, Mapping) or not given:
            raise PlanError(f"outputs must be a mapping of names to pipelines, got {outputs!r:.80}")
        for name, pipeline in given.items():
            if not isinstance(name, str) or not name or not isinstance(pipeline, Runs):
                raise PlanError(
                    f"outputs must be a mapping of names to pipelines; got {name!r}: {pipeline!r:.80}"
                )
            if not pipeline.plan.same_source(self.plan):
                raise PlanError(
                    f"outputs: {name!r} does not go on from the source of the pipeline that is run"
                )
        return with_outputs({name: pipeline.plan for name, pipeline in outputs.items()})


def processes_of(options: dict[str, Any], graph: bool) -> int:
    """Take out `processes`: how many. A graph runs in this one."""
    processes = options.pop("processes", None)
    if processes is None:
        for name in ("grouping", "grouping_key", "balance"):
            if options.pop(name, None) is not None:
                raise PlanError(f"{name} is for a run over several processes: give processes= too")
        return 1
    several = allowed_cpus() if processes == "auto" else whole("processes", processes, 1, 1024, ' or "auto"')
    if several == 1 or graph:  # there is nothing to choose
        options.pop("grouping", None)
        options.pop("grouping_key", None)
        options.pop("balance", None)
        return 1
    return several
