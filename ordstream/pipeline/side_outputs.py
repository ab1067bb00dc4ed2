"""Second outputs of operators: dead letters, and rows that came too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordstream.plan.rejections import side_output

if TYPE_CHECKING:
    from ordstream.pipeline.pipeline import Pipeline
    from ordstream.plan.plan import Plan


class SideOutputs:
    """Part of `Pipeline`."""

    def side_output(self, operator: str | None = None) -> Pipeline:
        """The second output of an operator of this pipeline: a pipeline as any other.

        Of on_error="dead_letter" the rows that its function could not process, with their own columns as the
        operator got them, and behind these `error_operator`, `error_serial` (of the source's tuple),
        `error_type` and `error_text` (the first 1,000 characters, and "..." where there are more). Of
        `reorder(late="side_output")` the late rows as they came.

        They stand where the row would have stood, so `od.union` with the first output keeps the order. A run
        in which nobody takes a second output is refused.

        Parameters
        ----------
        operator : str, optional
            Its name; may be left out where the pipeline has one such operator.

        Raises
        ------
        PlanError
            There is no such operator, or several.
        """
        return self.of(side_output(self.plan, operator, "side_output"))

    if TYPE_CHECKING:

        @property
        def plan(self) -> Plan: ...

        @classmethod
        def of(cls, plan: Plan) -> Pipeline: ...
