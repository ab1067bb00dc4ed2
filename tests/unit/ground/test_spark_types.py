"""Spark's types as Arrow's, and back; no session is needed."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.ground.depth import DEEPEST
from ordstream.ground.spark_types import arrow_field, arrow_zone, not_carried, schema_of_spark

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    CharType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from ordstream.spark import spark_schema
from ordstream.spark.columns import check_frame
from ordstream.testing import run_serial

UTC = pa.timestamp("us", "UTC")


def field(kind, nullable=True):
    return StructField("c", kind, nullable)


class Point(UserDefinedType):
    @classmethod
    def sqlType(cls):
        return StructType([StructField("x", DoubleType(), False), StructField("why", CharType(3))])


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        (ArrayType(StringType(), False), pa.list_(pa.field("element", pa.string(), False))),
        (ArrayType(VarcharType(3)), pa.list_(pa.string())),
        (
            StructType([StructField("a.b", IntegerType(), False), StructField("é", TimestampType())]),
            pa.struct([pa.field("a.b", pa.int32(), False), ("é", UTC)]),
        ),
        (
            MapType(TimestampType(), ArrayType(MapType(StringType(), TimestampNTZType())), False),
            pa.map_(UTC, pa.field("value", pa.list_(pa.map_(pa.string(), pa.timestamp("us"))), False)),
        ),
        (StructType([]), pa.struct([])),
        (StructType([StructField("a", NullType(), False)]), pa.struct([("a", pa.null())])),
        (NullType(), pa.null()),
        (ArrayType(NullType(), False), pa.list_(pa.null())),
        (MapType(StringType(), NullType(), False), pa.map_(pa.string(), pa.null())),
        (
            ArrayType(Point()),
            pa.list_(pa.struct([pa.field("x", pa.float64(), False), ("why", pa.string())])),
        ),
    ],
)
def test_what_a_pipeline_carries(kind, type_):
    found = arrow_field(field(kind, nullable=False), "UTC")
    assert found.equals(pa.field("c", type_, kind == NullType()))
    assert od.Pipeline(StructType([field(kind)])).schema.field("c").nullable


def test_metadata_is_left_out():
    kind = StructType([StructField("a", LongType(), True, {"comment": "what it is"})])
    assert schema_of_spark(StructType([field(kind)]), "here").field("c").type.field("a").metadata is None


def nested(kind, levels):
    for _ in range(levels):
        kind = StructType([StructField("a", kind)])
    return kind


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (VariantType(), "column 'c' is variant in Spark; "),
        (MapType(StringType(), ArrayType(VariantType())), "in Spark, with variant inside; "),
        (StructType([StructField("y", YearMonthIntervalType(0, 0))]), "with interval year inside; "),
        (nested(StringType(), DEEPEST + 1), f"with more than {DEEPEST} levels; "),
        (MapType(NullType(), StringType()), "with keys of no type; "),
        (StructType([StructField("a", LongType()), StructField("a", LongType())]), "two fields 'a' in one"),
    ],
)
def test_what_none_carries_is_one_sentence(kind, text):
    with pytest.raises(od.SchemaError) as failed:
        arrow_field(field(kind), "UTC")
    said = str(failed.value)
    assert said == not_carried(field(kind))
    assert text in said
    assert said.endswith("leave it out (df.drop('c'))")
    assert "\n" not in said


def test_the_deepest_passes():
    kind = nested(StringType(), DEEPEST)
    assert od.Pipeline(StructType([field(kind)])).schema.field("c").type == arrow_field(field(kind), "").type


@pytest.mark.parametrize(
    "type_",
    [
        pa.struct([pa.field("a", pa.int64(), False), ("b", pa.list_(pa.map_(pa.string(), pa.int8())))]),
        pa.list_(pa.list_(pa.struct([("at", UTC), ("wall", pa.timestamp("us"))]))),
        pa.null(),
        pa.struct([]),
    ],
)
def test_there_and_back(type_):
    schema = pa.schema([("c", type_)])
    assert schema_of_spark(spark_schema(schema), "here").equals(schema)


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (pa.struct([("u", pa.uint64()), ("h", pa.float16())]), "struct<u:decimal(20,0),h:float>"),
        (pa.list_(pa.uint8(), 3), "array<smallint>"),
        (pa.map_(pa.string_view(), pa.binary(4)), "map<string,binary>"),
        (pa.large_list(pa.dictionary(pa.int8(), pa.large_string())), "array<string>"),
        (pa.uuid(), "binary"),
        (pa.decimal256(38, 4), "decimal(38,4)"),
    ],
)
def test_what_spark_has_not_gets_wider_at_any_depth(type_, name):
    assert spark_schema(pa.schema([("c", type_)]))["c"].dataType.simpleString() == name


class ConnectFrame:
    """As a frame of Spark Connect: whatever it is asked for, it has a column of that name."""

    __module__ = "pyspark.sql.connect.dataframe"
    columns = ("id",)
    isStreaming = False
    schema = StructType([StructField("id", LongType())])

    class sparkSession:
        class conf:
            get = staticmethod(lambda *_: "UTC")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return f"Column<'{name}'>"


def test_a_frame_that_has_any_attribute_is_a_frame():
    """It was taken for one of pandas on Spark: no frame of Spark Connect was taken at all."""
    frame = ConnectFrame()
    assert od.Pipeline(frame).schema == pa.schema([("id", pa.int64())])
    check_frame(frame)
    with pytest.raises(od.SourceError, match=r"a Spark DataFrame goes to od\.spark\.apply"):
        od.Pipeline(frame).run(frame)
    with pytest.raises(od.SourceError, match=r"Arrow data is needed"):
        run_serial(od.Pipeline(frame), frame)


@pytest.mark.parametrize(
    ("zone", "name", "hour"),
    [
        ("UTC+03:00", "+03:00", 1), ("+8:00", "+08:00", 6), ("-8", "-08:00", 14), ("GMT+8", "+08:00", 6),
        ("+0530", "+05:30", 3), ("UTC-01:30:00", "-01:30", 20), ("-00:00", "UTC", 22), ("Z", "UTC", 22),
        ("PST", "America/Los_Angeles", 14), ("EST", "EST", 17), ("Europe/Berlin", "Europe/Berlin", 23),
        ("Etc/GMT-3", "Etc/GMT-3", 1), ("UT", "UTC", 22),
    ],
)  # fmt: skip
def test_zones_of_spark_have_the_name_that_arrow_knows(zone, name, hour):
    """Functions and windows failed on zones that Spark takes."""
    assert arrow_zone(zone) == name
    at = pa.array([1_700_000_000], pa.timestamp("s", name))  # 22:13 in Greenwich
    assert pc.hour(at).to_pylist() == [hour] == [at[0].as_py().hour]


def test_what_arrow_does_not_know_is_told_without_options():
    with pytest.raises(od.SchemaError, match="the time zone 'nowhere' is not known: Cannot"):
        od.Pipeline({"at": pa.timestamp("us", "nowhere")}).select(h=od.col("at").dt.hour())
