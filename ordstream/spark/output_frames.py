"""Several outputs of one pipeline in Spark: the wide rows of `ordstream.plan.outputs`, taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from ordstream.plan.columns import source_columns_by_way
from ordstream.plan.outputs import Output
from ordstream.spark.inputs import Input
from ordstream.spark.schemas import as_told


class OutputFrames(Mapping[str, DataFrame]):
    """A mapping of each output's name to its rows.

    Each is a DataFrame of its own: an action on one runs the pipeline, for that output alone. For one run in
    all, keep what they are taken from first: ``found.rows.persist()``.

    Attributes
    ----------
    rows : DataFrame
        Of all outputs, in one order: "stream", the number of the row's output, and the columns of all of
        them, those of one name and type once.
    """

    def __init__(
        self, rows: DataFrame, outputs: Sequence[Output], told: Sequence[Mapping[int, StructField]]
    ) -> None:
        self.rows = rows
        self._told = told  # of each output: column of `rows` -> that of the source which it is
        self._outputs = {output.name: (number, output) for number, output in enumerate(outputs)}

    @classmethod
    def of(cls, rows: DataFrame, outputs: Sequence[Output], given: Input) -> OutputFrames:
        """Of what was made of these frames."""
        fields, ways = given.fields(), source_columns_by_way(given.pipeline.plan)
        return cls(rows, outputs, [{out: fields[at] for out, at in way.items()} for way in ways])

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._outputs:
            raise KeyError(f"there is no output {name!r}; there are {', '.join(map(repr, self._outputs))}")
        number, output = self._outputs[name]
        names = self.rows.columns
        called = [f"d{at}" for at in range(len(names))]  # the user's may need quotes, or differ in case only
        told, fields = self._told[number], self.rows.schema.fields
        own = [
            as_told(F.col(f"d{at}"), column, fields[at].dataType, told.get(at))
            for at, column in zip(output.columns, output.schema.names, strict=True)
        ]
        wide = 1 + max((at for _, one in self._outputs.values() for at in one.columns), default=0)
        tags = [F.col(f"d{at}").alias(names[at]) for at in range(wide, len(names))]
        chosen = self.rows.toDF(*called).where(F.col("d0") == number)
        return chosen.select(*own, *tags)

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        return f"<ordstream.spark.OutputFrames {', '.join(self)}>"
