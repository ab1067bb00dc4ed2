"""What a job reads: one frame in an order, or several, merged by a column that all have.

Several frames become one: their rows have the wide columns of `ordstream.plan.sources`, and Spark sorts them
by the column that merges them, then by the place of their source in the mapping, then as each frame is
ordered alone. So the serials are those that a run on one machine gives, where each source comes in that
order (`ordstream.node.merging`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    NullType,
    StringType,
    StructField,
)

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.ordercheck import SortKey
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.outputs import Output
from ordstream.plan.sources import MergeBy, merge_columns, wide_source, with_one_source
from ordstream.spark.columns import FILE, ROW, Carried, carry, check_frame, check_pipeline, place_in_source
from ordstream.spark.executor import carried_name
from ordstream.spark.in_files import check_one_after_the_other, files_of
from ordstream.spark.names import find_column, is_case_sensitive
from ordstream.spark.order import OrderBy, order_keys, order_names

#: Of the place of a row's source in the mapping.
RANK = "o0"
#: Digits of Spark's largest decimal.
MOST_DIGITS = 38
#: Types that Spark brings to one without losing anything; decimals up to `MOST_DIGITS`.
_FAMILIES: tuple[tuple[type[DataType], ...], ...] = (
    (IntegralType,),
    (FloatType, DoubleType),
    (DecimalType,),
)


@dataclass(frozen=True)
class Input:
    """The frames of a job and the pipeline that takes their rows.

    Attributes
    ----------
    pipeline : Pipeline
        Of one source.
    frames : dict of str or None to DataFrame
        In the order of the user's mapping; None: the only one.
    order_by : Any
        As the user gave it.
    ways : dict of str to (int, Output)
        Of several sources: each one's number, and where its columns are.
    merge_by : str or None
        The column of the pipeline's source by which several are merged.
    """

    pipeline: Pipeline
    frames: Mapping[Any, DataFrame]
    order_by: Any
    ways: Mapping[str, tuple[int, Output]]
    merge_by: str | None

    @property
    def session(self) -> SparkSession:
        """Spark's."""
        found: SparkSession = next(iter(self.frames.values())).sparkSession
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """What the rows are ordered by, as the user knows it."""
        merged = () if self.merge_by is None else (self.merge_by, "the sources in their order")
        return (*merged, *order_names(self.order_by))

    def carried(self, read: Sequence[str], compared: Collection[int], presorted: bool = False) -> Carried:
        """What of the frames reaches the nodes: the arguments are those of `columns.carry`, for the columns
        of the pipeline's source; `presorted`: the rows are said to be in order.

        Raises
        ------
        SchemaError
            As `carry`; or a column has different types in two frames.
        PlanError
            As `carry`.
        """
        source = self.pipeline.source_schema
        if self.merge_by is None:
            (df,) = self.frames.values()
            one = carry(df, source, read, order_keys(self.order_by, df), compared)
            known = presorted and place_in_source(one.frame)
            return replace(one, in_files=files_of(one.frame)) if known else one
        return _merged(self, {*read, self.merge_by}, compared)

    def check_order(self, presorted: bool, order: str) -> None:
        """Raise PlanError where the order that the source has is asked for, and Spark does not know it:
        only rows that meet no state, in no order, may come as they like.
        """
        if self.merge_by is not None or order_names(self.order_by):
            return
        (df,) = self.frames.values()
        operators = self.pipeline.plan.operators
        if place_in_source(df) or (order == "none" and not any(one.stateful for one in operators)):
            return
        if presorted:
            check_one_after_the_other(df)
            return
        raise PlanError(
            "order_by=() is the order that the source has, and this frame does not say where a row stands "
            "in it (one that is read from Parquet files does): name the columns that order its rows, or "
            "give presorted=True if they lie in order, one partition after the other"
        )

    def fields(self) -> list[StructField]:
        """Spark's fields of the columns of the pipeline's source; of those that two frames have with
        different types: a plain text.
        """
        plain = StructField("", StringType())
        found: dict[int, StructField] = {}
        for name, df in self.frames.items():
            way = self.ways[name][1] if self.ways else None
            source = self.pipeline.source_schema if way is None else way.schema
            columns, sensitive = range(len(source)) if way is None else way.columns, is_case_sensitive(df)
            for at, one in zip(columns, source.names, strict=True):
                field = df.schema.fields[find_column(one, df.columns, sensitive, "the DataFrame")]
                other = found.setdefault(at, field)
                if other.dataType != field.dataType:
                    found[at] = plain
                elif other.metadata != field.metadata:
                    found[at] = StructField(one, field.dataType)
        return [found.get(at, plain) for at in range(len(self.pipeline.source_schema))]


def input_of(pipeline: Pipeline, given: Any, order_by: OrderBy | None, merge_by: MergeBy | None) -> Input:
    """Check what a job reads.

    Raises
    ------
    PlanError
        It is no DataFrame, or not those of the pipeline's sources; or `order_by` or `merge_by` lacks, or has
        no use.
    """
    check_pipeline(pipeline, "a job")
    plan = pipeline.plan
    named = [str(source.name) for source in plan.all_sources if source.name is not None]
    if isinstance(given, Mapping):
        if set(given) != set(named):
            has = f"the sources {', '.join(map(repr, named))}" if named else "one source without a name"
            got = ", ".join(map(repr, given)) or "none"
            raise PlanError(f"the pipeline has {has}; got the frames {got}")
        for df in given.values():
            check_frame(df)
    elif plan.sources:
        raise PlanError(
            f"the pipeline has the sources {', '.join(map(repr, named))}: give a mapping of each to its "
            "DataFrame, and merge_by="
        )
    else:
        check_frame(given)
    if not plan.sources:
        _check_unmerged(merge_by)
        if order_by is None:
            raise PlanError(
                "order_by takes the name of a column, a column of Spark's, or a list of these, and is needed"
                ": () for the order that the source has"
            )
        (df,) = given.values() if isinstance(given, Mapping) else (given,)
        return Input(pipeline, {None: df}, order_by, {}, None)
    if merge_by is None:
        raise PlanError("several sources: say which column merges them, merge_by='ts'")
    one = Pipeline.of(with_one_source(plan, merge_by))
    ways = {way.name: (number, way) for number, way in enumerate(wide_source(plan, merge_by)[0])}
    first = next(iter(ways.values()))[1]
    column = merge_columns(plan, merge_by)[0]
    wide = one.source_schema.names[first.columns[first.schema.get_field_index(column)]]
    return Input(one, dict(given), () if order_by is None else order_by, ways, wide)


def of_one_source(pipeline: Pipeline, given: Any, merge_by: MergeBy | None) -> Pipeline:
    """The pipeline as a job of some frames has it, or of any, which is None: its sources are one.

    Raises
    ------
    PlanError
        `given` is neither a frame nor a mapping of such; `merge_by` lacks, or has no use.
    """
    for df in given.values() if isinstance(given, Mapping) else () if given is None else (given,):
        check_frame(df)
    if pipeline.plan.sources:
        return Pipeline.of(with_one_source(pipeline.plan, merge_by))
    _check_unmerged(merge_by)
    return pipeline


def _check_unmerged(merge_by: MergeBy | None) -> None:
    if merge_by is not None:
        raise PlanError("merge_by is for a pipeline of several sources; this one has one")


# ------------------------------------------------------------------------------------------- several


@dataclass(frozen=True)
class _Part:
    """The rows of one source.

    Attributes
    ----------
    name : str
    frame : DataFrame
    columns : dict of str to (Column, DataType)
        Name in the job -> what it is of `frame`.
    keys : tuple of SortKey
        What `order_by` asks for.
    texts : tuple of str
        The same as the user knows it.
    ties : tuple of str
        Of `columns`: all that the source has, in its order, where Spark knows no place in it.
    """

    name: str
    frame: DataFrame
    columns: dict[str, tuple[Column, DataType]]
    keys: tuple[SortKey, ...]
    texts: tuple[str, ...]
    ties: tuple[str, ...]


def _merged(given: Input, read: Collection[str], compared: Collection[int]) -> Carried:
    wide, by = given.pipeline.source_schema, carried_name(_merge_column(given))
    parts = [_part(given, rank, name, read, compared) for rank, name in enumerate(given.frames)]
    own = [carried_name(at) for at, field in enumerate(wide) if field.name in read or at == 0]
    own = [name for name in own if any(name in part.columns for part in parts)]
    own += [RANK, *(key.column for key in parts[0].keys)]
    places = [name for name in (FILE, ROW) if any(name in part.columns for part in parts)]
    ties = [name for part in parts for name in part.ties]
    kinds = {name: _common(name, parts, wide) for name in (*own, *places, *ties)}
    frames = []
    for part in parts:
        missing = {name: F.lit(None).cast(kind) for name, kind in kinds.items() if name not in part.columns}
        known = {name: column for name, (column, _) in part.columns.items()} | missing
        frames.append(part.frame.select(*(known[name].alias(name) for name in kinds)))
    keys = (SortKey(by), SortKey(RANK), *parts[0].keys)
    texts = (*given.names[:2], *parts[0].texts)
    ordered = {key.column for key in keys}
    return Carried(
        reduce(DataFrame.union, frames),
        {name: F.col(name) for name in own},
        keys,
        texts,
        (*ties, *(name for name in own if name not in ordered)),
        [],
    )


def _part(given: Input, rank: int, name: str, read: Collection[str], compared: Collection[int]) -> _Part:
    """The rows of one source, `rank` in the mapping, with the wide columns that it has."""
    (number, way), df, wide = given.ways[name], given.frames[name], given.pipeline.source_schema
    chosen = {k: at for k, at in enumerate(way.columns) if wide.names[at] in read}
    looked = [k for k, at in enumerate(way.columns) if at in compared]
    try:
        ordered = order_keys(given.order_by, df)
        one = carry(df, way.schema, [way.schema.names[k] for k in chosen], ordered, looked)
    except (SchemaError, PlanError) as error:
        raise type(error)(f"source {name!r}: {error}") from error
    place = place_in_source(one.frame)
    taken = {column: value.alias(column) for column, value in one.columns.items()}
    ties = {} if place else {f"t{rank}_{k}": at for k, at in enumerate(one.ties)}
    further = [F.col(at) for at in one.ties if not place and at not in taken]
    placed = (F.col(at).alias(column) for column, at in place.items())
    rows = one.frame.select(*taken.values(), *further, *placed)
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    columns = {
        carried_name(at): (F.col(own), kinds[own])
        for at, own in ((at, carried_name(k)) for k, at in chosen.items())
    }
    by = carried_name(_merge_column(given))
    own_name = way.schema.names[way.columns.index(_merge_column(given))]
    text = f"source {name!r}: {own_name!r}, by which it is merged, is null"
    columns[by] = F.coalesce(columns[by][0], F.raise_error(F.lit(text)).cast(columns[by][1])), columns[by][1]
    columns[carried_name(0)] = F.lit(number).cast("bigint"), LongType()
    columns[RANK] = F.lit(rank).cast("bigint"), LongType()
    columns |= {column: (F.col(column), kinds[column]) for column in place}
    columns |= {column: (F.col(at), kinds[at]) for column, at in ties.items()}
    keys = [SortKey(f"o{k}", key.descending, key.nulls_last) for k, key in enumerate(one.keys, 1)]
    for key, own in zip(keys, one.keys, strict=True):
        columns[key.column] = F.col(own.column), kinds[own.column]
    return _Part(name, rows, columns, tuple(keys), one.texts, tuple(ties))


def _merge_column(given: Input) -> int:
    """Where the column that merges the sources is in the wide rows."""
    return int(given.pipeline.source_schema.names.index(given.merge_by))


def _common(name: str, parts: Sequence[_Part], wide: pa.Schema) -> DataType:
    """The type of a column in all sources that have it.

    Raises
    ------
    SchemaError
        There are several.
    """
    found = [(part.name, part.columns[name][1]) for part in parts if name in part.columns]
    known = [(source, kind) for source, kind in found if not isinstance(kind, NullType)] or found
    first, kind = known[0]
    for source, other in known[1:]:
        if other.simpleString() == kind.simpleString():
            continue
        one = next((of for of in _FAMILIES if isinstance(kind, of) and isinstance(other, of)), ())
        if not one or (DecimalType in one and _digits([told for _, told in known]) > MOST_DIGITS):
            what = wide.names[int(name[1:])] if name[0] == "c" else "what order_by names"
            why = "no decimal of Spark's holds the values of all" if one else "both go through one column"
            raise SchemaError(
                f"{what} is {kind.simpleString()} in source {first!r} and {other.simpleString()} in source "
                f"{source!r}, and {why}: cast one of them in Spark"
            )
    return kind


def _digits(kinds: Sequence[DataType]) -> int:
    """What a decimal needs that holds all values of these. One of fewer takes them rounded, without a word:
    so does Spark's union.
    """
    decimals = [kind for kind in kinds if isinstance(kind, DecimalType)]
    return max(kind.precision - kind.scale for kind in decimals) + max(kind.scale for kind in decimals)
