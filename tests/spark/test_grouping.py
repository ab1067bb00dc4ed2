"""`apply(..., grouping=...)`: the output, its order and its tags whatever chooses the nodes; what is
learnt, and where it is refused.
"""

import itertools
import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import spark_tools
from spark_tools import SOURCE, chain, fail, kill, once, rows_of, stream, write_files

import ordstream as od
from ordstream.balance.baselines import optimal_approximation, universal
from ordstream.balance.metrics import imbalance
from ordstream.balance.posg import FrozenPosg
from ordstream.reference.run_serial import run_serial

pytest.importorskip("pyspark")

from pyspark import TaskContext, cloudpickle
from pyspark.sql import functions as F

from ordstream.spark import Balancer, Channel, apply, explain
from ordstream.spark.hashed_map import HashedMap

cloudpickle.register_pickle_by_value(spark_tools)
pytestmark = pytest.mark.spark

ROWS = 1_200
FRONT = "enriched"


def front(pipeline):
    return pipeline.map(tuple, schema=SOURCE, name=FRONT)


@pytest.fixture(scope="module")
def serial():
    return run_serial(chain(front, last=False), stream(range(ROWS)))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grouping")
    write_files(folder, stream(range(ROWS)), [50, 900], ["a", "b", "c"])
    return str(folder)


@pytest.fixture(scope="module")
def row(spark):
    return spark.createDataFrame([(1, 1, "a", 0)], "ts long, user long, item string, n long")


def same(found, serial):
    tags = list(zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True))
    return rows_of(found.drop(["_serial", "_index"])) == rows_of(serial.table) and tags == serial.tags


def skewed(n=20_000, seed=3):
    """Keys by Zipf-1.5, timestamps ascending."""
    keys = np.minimum(np.random.default_rng(seed).zipf(1.5, n), 10_000)
    return pa.table([np.arange(n), keys, np.arange(n) % 7], names=["ts", "key", "n"]).cast(
        pa.schema([("ts", pa.int64()), ("key", pa.int64()), ("n", pa.int64())])
    )


def tuples_of(channel, fragment):
    return [
        report["tuples"] for _, report in sorted(channel.latest.items()) if report["fragment"] == fragment
    ]


GROUPINGS = {
    "dkg": (3, "dkg"),
    "wosim": (2, {"sessionize_5": od.DKG(variant="wosim", cost="quadratic", m=500)}),
    "posg": (4, "posg"),
    "by operator": (3, {FRONT: od.POSG(), "scan_4": od.DKG(theta=0.3), "count_7": "hash"}),
    "map": (2, {"scan_4": universal(2, seed=5)}),
    "model": (2, FrozenPosg(2, None, seed=1)),
    "one node": (1, {FRONT: "posg", "scan_4": "dkg"}),
}


@pytest.mark.parametrize("name", GROUPINGS)
@pytest.mark.thin(3)
def test_every_update_and_its_tag_are_those_of_a_sequential_run(spark, files, serial, name):
    pipeline = chain(front, last=False)
    assert "scan_4" in [stage.name for stage in pipeline.plan.operators]
    nodes, grouping = GROUPINGS[name]
    found = apply(
        pipeline, spark.read.parquet(files), order_by="ts", nodes=nodes, tags=True, grouping=grouping
    ).toArrow()
    assert same(found, serial)


@pytest.mark.parametrize("name", ["dkg", "posg"])
def test_settings_that_look_at_what_comes_back(spark, files, serial, name):
    """Spark compares schemas with what Python gives, and leaves out what it groups by."""
    settings = {
        "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
        "spark.sql.retainGroupColumns": "false",
    }
    nodes, grouping = GROUPINGS[name]
    for setting, value in settings.items():
        spark.conf.set(setting, value)
    try:
        found = apply(
            chain(front, last=False),
            spark.read.parquet(files),
            order_by="ts",
            nodes=nodes,
            tags=True,
            grouping=grouping,
        ).toArrow()
    finally:
        for setting in settings:
            spark.conf.unset(setting)
    assert same(found, serial)


@pytest.mark.parametrize("grouping", [od.DKG(), od.POSG()])
def test_a_balancer_carries_a_model_from_job_to_job(spark, files, serial, grouping):
    pipeline = chain(front, last=False)
    balancer = (
        Balancer(grouping, key="item", learn="previous")
        if isinstance(grouping, od.POSG)
        else Balancer(grouping, learn="previous")
    )
    texts = []
    for _ in range(2):
        texts.append(explain(pipeline, spark, nodes=3, grouping=balancer, order_by="ts"))
        found = apply(
            pipeline, spark.read.parquet(files), order_by="ts", nodes=3, tags=True, grouping=balancer
        ).toArrow()
        assert same(found, serial)
    if isinstance(grouping, od.POSG):
        assert balancer.times.tuples >= 50  # of cheap functions only some rows are measured
        assert "Round-Robin" in texts[0]
        assert "estimated time of enriched per item" in texts[1]
    else:
        assert set(balancer.maps) == {"scan_4", "sessionize_5", "count_7"}
        assert texts[0].count("not learnt yet") == texts[1].count("learnt from the job before") == 3
    again = Balancer(grouping)
    again.load(balancer.to_bytes())
    assert again.to_bytes() == balancer.to_bytes()


@pytest.mark.parametrize("act", [fail, kill])
def test_a_retry_sends_every_row_where_it_went_before(spark, tmp_path, act):
    def pipeline(step):
        return (
            front(od.Pipeline(SOURCE))
            .map(step, schema=SOURCE)
            .key_by("user")
            .scan(seen=od.count(), least=od.min("n"), name="seen")
        )

    table = stream(range(ROWS))
    expected = rows_of(run_serial(pipeline(tuple), table).table)
    balancer = Balancer("posg", key=["item", "user"])
    frame = spark.createDataFrame(
        [tuple(r.values()) for r in table.to_pylist()], "ts long, user long, item string, n long"
    )
    warm = apply(front(od.Pipeline(SOURCE)), frame, order_by=["ts", "n"], nodes=3, grouping=balancer)
    assert warm.count() == ROWS
    assert balancer.times is not None
    grouping = {FRONT: balancer, "seen": od.DKG(m=400)}
    result = apply(
        pipeline(once(str(tmp_path / "flag"), act)), frame, order_by=["ts", "n"], nodes=3, grouping=grouping
    )
    (tmp_path / "flag").unlink(missing_ok=True)  # the sample met the fault as well
    assert rows_of(result.toArrow()) == expected
    assert (tmp_path / "flag").exists()


@pytest.mark.parametrize("learn", ["sample", "all"])
def test_what_executors_learn_is_what_one_learner_learns(spark, learn):
    table = skewed()
    pipeline = od.Pipeline(table.schema).key_by("key").scan(seen=od.count())
    frame = spark.createDataFrame(table).repartition(3)
    parameters = od.DKG(m=100_000 if learn == "sample" else 10, theta=0.05)
    balancer, channel = Balancer(parameters, learn=learn), Channel()
    found = apply(pipeline, frame, order_by="ts", nodes=4, grouping=balancer, report=channel)
    learnt = balancer.maps["scan_1"]  # before a row was sent
    assert rows_of(found.toArrow()) == rows_of(run_serial(pipeline, table).table)
    learner = od.DKG(m=1 << 40, theta=0.05).learner(4)
    learner.learn(table["key"])
    exact = np.bincount(table["key"].to_numpy())
    frequent = {key for key in range(len(exact)) if exact[key] >= 0.05 * len(table)}
    assert frequent <= {key for key, _ in learnt.heavy}
    assert sum(count for _, _, count, _ in learner.summary.frequent(0.05)) > 0
    sent = np.bincount(learnt.route(table["key"]), minlength=4)
    assert tuples_of(channel, 2) == sent.tolist()
    one = learner.build()
    assert imbalance(sent) <= imbalance(np.bincount(one.route(table["key"]), minlength=4)) + 3
    assert imbalance(sent) < min(
        imbalance(np.bincount(universal(4, seed).route(table["key"]), minlength=4)) for seed in range(10)
    )
    assert (learner.hashes.coefficients, learner.instances) == (learnt.hashes.coefficients, learnt.instances)


def test_the_keys_sent_in_one_job_make_the_map_of_the_next(spark):
    table = skewed(4_000)
    pipeline = od.Pipeline(table.schema).key_by("key").scan(seen=od.count())
    frame, balancer = spark.createDataFrame(table), Balancer("dkg", learn="previous")
    spreads = []
    for _ in range(2):
        channel = Channel()
        apply(pipeline, frame, order_by="ts", nodes=4, grouping=balancer, report=channel).toArrow()
        spreads.append(imbalance(tuples_of(channel, 2)))
    learner = od.DKG().learner(4)
    learner.learn(table["key"])
    assert dict(balancer.maps["scan_1"].heavy).keys() == dict(learner.build().heavy).keys()
    assert spreads[1] < spreads[0]


@pytest.mark.parametrize(("grouping", "what"), [("pkg", "totals"), (od.DKG(variant="pkg"), "counted")])
def test_split_keys_are_merged(spark, grouping, what):
    from plan_tools import final

    table = skewed(6_000)
    start = od.Pipeline(table.schema).key_by("key")
    counted = (
        start.count("m", emit="final", name="words")
        .filter(od.col("m") > 1)
        .key_by("m")
        .count("of", emit="final")
    )
    totals = start.aggregate(
        s=od.sum("n"), a=od.mean("n"), low=od.min("ts"), high=od.max("ts"), name="words"
    )
    pipeline, options = (counted, {}) if what == "counted" else (totals, {"emit": "final"})
    channel = Channel()
    frame = spark.createDataFrame(table)
    result = apply(
        pipeline,
        frame,
        order_by="ts",
        nodes=4,
        grouping={"words": grouping},
        tags=True,
        report=channel,
        **options,
    )
    assert same(result.toArrow(), run_serial(final(pipeline) if options else pipeline, table))
    assert imbalance(tuples_of(channel, 2)) < 10  # a whole key is 38 % of the rows
    assert "which may share the rows of a key" in explain(
        counted, spark, nodes=4, grouping={"words": grouping}
    )


def test_the_posg_stage_is_balanced_by_time(spark, tmp_path):
    """Not a measurement: rows of 20 ms and of none at all; counted is where the dear ones went."""
    table = stream(range(600))
    frame = spark.createDataFrame(
        [tuple(r.values()) for r in table.to_pylist()], "ts long, user long, item string, n long"
    )
    balancer, dear = Balancer("posg", key="item"), []
    for job in ("first", "second"):
        nodes = tmp_path / job
        nodes.mkdir()

        def slow(row, nodes=nodes):
            if row.item == "é0":
                time.sleep(0.02)
                with (nodes / str(TaskContext.get().partitionId())).open("a") as file:
                    file.write(f"{row.n}\n")
            return tuple(row)

        frame_ = apply(
            od.Pipeline(SOURCE).map(slow, schema=SOURCE),
            frame,
            order_by=["ts", "n"],
            nodes=5,
            grouping=balancer,
        )
        assert rows_of(frame_.toArrow()) == rows_of(run_serial(od.Pipeline(SOURCE), table).table)
        dear.append([len(set(file.read_text().split())) for file in nodes.iterdir()])
    # Round-Robin over 5 nodes sends every fifth row, all the dear ones, to one node.
    assert dear[0] == [120]
    assert sum(dear[1]) == 120
    assert len(dear[1]) == 5
    assert max(dear[1]) < 3 * min(dear[1])


def test_posg_alone_learns_from_the_first_slice_of_the_job(spark, tmp_path):
    """Nobody gives execution times. Round-Robin sends all dear rows to one node."""
    frame = spark.createDataFrame(
        [tuple(r.values()) for r in stream(range(600)).to_pylist()],
        "ts long, user long, item string, n long",
    )

    def slow(row, folder=tmp_path):
        if row.item == "é0":
            time.sleep(0.01)
            with (folder / str(TaskContext.get().partitionId())).open("a") as file:
                file.write(f"{row.n}\n")
        return tuple(row)

    pipeline = od.Pipeline(SOURCE).map(slow, schema=SOURCE, name="look up")
    order, dear = ["ts", "n", "user"], {}
    for rows, window in (("few", 100), ("enough", 50)):  # 4 times 2 N rows have to be there
        result = apply(pipeline, frame, order_by=order, nodes=5, grouping=od.POSG(window=window))
        for file in tmp_path.iterdir():  # of the slice
            file.unlink()
        assert rows_of(result.toArrow()) == rows_of(
            run_serial(od.Pipeline(SOURCE), stream(range(600))).table
        )
        dear[rows] = [len(set(file.read_text().split())) for file in tmp_path.iterdir()]
    assert dear["few"] == [120]
    assert len(dear["enough"]) == 5
    assert max(dear["enough"]) < 3 * min(dear["enough"])
    assert "learnt from the first 100 rows" in explain(
        pipeline, spark, nodes=5, grouping=od.POSG(window=50), order_by=order
    )


def test_jobs_built_before_the_first_one_runs_all_count(spark):
    tables = [
        pa.table({"ts": range(400), "key": [heavy if n % 2 else 1_000 + n for n in range(400)]})
        for heavy in (7, 9)
    ]
    balancer = Balancer("dkg", learn="previous", half_life=(float("inf"), float("inf")))
    pipeline = od.Pipeline(tables[0].schema).key_by("key").scan(seen=od.count())
    results = [
        apply(pipeline, spark.createDataFrame(table), order_by="ts", nodes=3, grouping=balancer)
        for table in tables
    ]
    for result, table in zip([*results, results[0]], [*tables, tables[0]], strict=True):  # one of them twice
        assert rows_of(result.toArrow()) == rows_of(run_serial(pipeline, table).table)
    assert {key for key, _ in balancer.maps["scan_1"].heavy} == {7, 9}
    again = Balancer("dkg")
    again.load(balancer.to_bytes())
    assert again.maps["scan_1"].to_bytes() == balancer.maps["scan_1"].to_bytes()


def test_where_hash_is_as_good_it_is_kept_and_the_log_says_so(spark, caplog):
    caplog.set_level("INFO", "ordstream.spark.grouping")
    even = pa.table({"ts": range(6_000), "key": [n * 7_919 % 2_003 for n in range(6_000)]})
    spread, jobs = {}, {}
    for name, table in (("even", even), ("skewed", skewed(6_000).select(["ts", "key"]))):
        pipeline, frame = (
            od.Pipeline(table.schema).key_by("key").scan(seen=od.count(), name="seen"),
            spark.createDataFrame(table),
        )
        for grouping in ("hash", "dkg"):
            channel = Channel()
            spark.sparkContext.setJobGroup(f"{name} {grouping}", "")
            found = apply(pipeline, frame, order_by="ts", nodes=4, grouping=grouping, report=channel)
            assert rows_of(found.toArrow()) == rows_of(run_serial(pipeline, table).table)
            spread[name, grouping] = tuples_of(channel, 2)
            group = spark.sparkContext.statusTracker().getJobIdsForGroup(f"{name} {grouping}")
            jobs[name, grouping] = len(group)
    # one query learns: its two stages are a job each
    assert [jobs[name, "dkg"] - jobs[name, "hash"] for name in ("even", "skewed")] == [2, 2]
    assert spread["even", "dkg"] == spread["even", "hash"]
    assert max(spread["skewed", "dkg"]) < max(spread["skewed", "hash"])
    assert spread["skewed", "dkg"] != spread["skewed", "hash"]
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(";")[0] for line in said] == [
        "seen: rows go by a hash of the key, as before",
        "seen: rows go by DKG's map",
    ]
    assert f"{max(spread['even', 'hash']) / 1_500:.2f} times the mean by hash" in said[0]
    assert "by hash where that spreads them as evenly" in explain(pipeline, spark, nodes=4, grouping="dkg")


def test_many_heavy_hitters_are_one_expression(spark):
    """One CASE in the other overflowed the stack of Spark."""
    most = 500
    by_map = HashedMap(tuple((k, k // 2 % 3) for k in range(most)), (0, 1, 2))
    found = spark.range(most + 9).select(by_map.node(F.col("id"))).collect()
    assert [row[0] for row in found] == [k // 2 % 3 if k < most else k % 3 for k in range(most + 9)]


def test_a_balancer_weighs_keys_by_what_they_cost(spark):
    """One row in 40 takes time, the others none: by rows its key is no heavy hitter."""
    table = pa.table({"ts": range(2_000), "key": [n % 40 for n in range(2_000)]})

    def work(row):
        if row.key == 7:
            time.sleep(0.004)
        return tuple(row)

    counted = od.Pipeline(table.schema).key_by("key").scan(seen=od.count(), name="seen")
    pipeline, frame = counted.map(work, schema=counted.schema, name="work"), spark.createDataFrame(table)
    balancer, heavy = Balancer("dkg", learn="previous"), []
    assert "keys weighed by the time that work takes" in explain(pipeline, spark, nodes=3, grouping=balancer)
    for _ in range(3):
        found = apply(pipeline, frame, order_by="ts", nodes=3, grouping=balancer)
        assert rows_of(found.toArrow()) == rows_of(run_serial(counted, table).table)
        heavy.append([key for key, _ in balancer.maps["seen"].heavy])
    assert heavy[0] == []
    assert 7 in heavy[-1]  # on a loaded machine a row of another key may have waited as long, and truly did
    again = Balancer("dkg")
    again.load(balancer.to_bytes())
    assert again.to_bytes() == balancer.to_bytes()


def test_a_model_is_loaded_by_what_learnt_it_alone():
    """No Spark needed."""
    balancer = Balancer("dkg")
    learner = od.DKG(m=1 << 62).learner(4)
    learner.learn(skewed(5_000)["key"])
    balancer._learnt("seen", learner)
    data = balancer.to_bytes()
    for other in (
        od.POSG(),
        od.DKG(theta=0.3),
        od.DKG(mu=9),
        od.DKG(seed=1),
        od.DKG(variant="wosim"),
        od.DKG(cost="quadratic"),
    ):
        refusing = Balancer(other)
        with pytest.raises(ValueError, match=r"was learnt for DKG\(theta=0.1"):
            refusing.load(data)
        assert refusing.maps == {}
    with pytest.raises(
        ValueError, match=r"learnt for POSG\(rows=4, columns=55, seed=0\), not for POSG\(rows=4, columns=272"
    ):
        Balancer(od.POSG(epsilon=0.01)).load(Balancer("posg").to_bytes())
    same = Balancer(od.DKG(m=5))  # how many rows a first sample has says nothing about the model
    same.load(data)
    assert same.maps["seen"].to_bytes() == balancer.maps["seen"].to_bytes()
    for arguments, words in ((("dkg", (1,)), "half_life is"), (("dkg", (0, 1)), "half-life in rows")):
        with pytest.raises(od.PlanError, match=words):
            Balancer(arguments[0], half_life=arguments[1])


KEYED = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count(), name="seen")
STATELESS = od.Pipeline(SOURCE).map(tuple, schema=SOURCE, name="look up")
BOTH = (
    STATELESS.key_by("user").scan(seen=od.count(), name="seen").map(tuple, schema=KEYED.schema, name="after")
)
WHOLE = od.Pipeline(SOURCE).count("all", name="all")


@pytest.mark.parametrize(
    ("pipeline", "grouping", "words"),
    [
        (
            KEYED,
            "posg",
            "POSG spreads the stateless operators in front .* begins with 'seen', which keeps state",
        ),
        (od.Pipeline(SOURCE), "posg", "this pipeline has no operators"),
        (STATELESS, "dkg", "this pipeline has none"),
        (WHOLE, "dkg", "this pipeline has none"),
        (BOTH, {"seen": "posg"}, "'seen' keeps state; POSG sends rows of one key to different nodes"),
        (BOTH, {"look up": od.DKG()}, "'look up' keeps no state by key"),
        (BOTH, {"after": "posg"}, "'after' runs in the nodes of 'seen'"),
        (WHOLE, {"all": "dkg"}, "'all' has one state for all rows"),
        (BOTH, {"nobody": "dkg"}, "no operator is called 'nobody'; there are look up, seen, after"),
        (BOTH, "pkg", "operator 'seen' has no declared merge"),
        (BOTH, od.DKG(variant="pkg"), "operator 'seen' has no declared merge"),
        (
            od.Pipeline(SOURCE).key_by("user").count(name="c"),
            "pkg",
            "operator 'c' has no declared merge",
        ),
        (
            od.Pipeline(SOURCE).select(x=od.col("n") / 2).key_by("x").count(name="c", emit="final"),
            "pkg",
            "the key of operator 'c' has a float, 'x': 0.0 and -0.0 are one key",
        ),
        (KEYED, universal(5), "a KeyMap for 5 nodes can't serve nodes=2: write nodes=5"),
        (STATELESS, od.POSG(instances=3), "a POSG for 3 nodes can't serve nodes=2"),
        (KEYED, "round", "grouping is one of 'hash', 'dkg', 'posg', 'pkg'"),
        (KEYED, 3, "grouping is one of"),
        (STATELESS, Balancer("posg", key="at"), "unknown column 'at'"),
        (STATELESS, Balancer("posg", operator="seen"), "'seen' is not among the stateless operators"),
        (BOTH.select("user").select("user"), {"look up": Balancer("posg", operator="other")}, None),
    ],
)
def test_what_does_not_fit_is_refused_when_the_job_is_built(spark, row, pipeline, grouping, words):
    if words is None:
        assert apply(pipeline, row, order_by="ts", nodes=2, grouping=grouping).collect() == [(1,)]
        return
    with pytest.raises((od.PlanError, od.SchemaError), match=words):
        apply(pipeline, row, order_by="ts", nodes=2, grouping=grouping)
    with pytest.raises((od.PlanError, od.SchemaError), match=words):
        explain(pipeline, spark, nodes=2, grouping=grouping, order_by="ts")


def test_one_node_checks_the_grouping_too(row):
    assert apply(KEYED, row, order_by="ts", grouping="dkg").collect() == [(1, 1, "a", 0, 1)]
    with pytest.raises(od.PlanError, match="POSG spreads"):
        apply(KEYED, row, order_by="ts", grouping="posg")
    for nodes in ("auto", None):
        with pytest.raises(od.PlanError, match=r"nodes=1: write nodes=3 \(None is one node; 'auto'"):
            apply(KEYED, row, order_by="ts", nodes=nodes, grouping={"seen": universal(3)})


def test_a_balancer_refuses_what_it_cannot_use():
    for arguments, words in (
        (("hash",), "a Balancer learns for"),
        ((od.DKG(), "user"), "key and operator are for POSG"),
        (("dkg", None, None, "never"), "learn is one of"),
    ):
        with pytest.raises(od.PlanError, match=words):
            Balancer(arguments[0], **dict(zip(("key", "operator", "learn"), arguments[1:], strict=False)))
    for data in (b"", b"x" * 100, od.DKG().fit([1, 2, 3], 2).to_bytes()):
        with pytest.raises(ValueError, match=r"no serialised Balancer|hold a KeyMap"):
            Balancer().load(data)


def test_a_route_is_a_pure_function_of_the_rows_in_order():
    """Whatever the batches they come in, and each time; no Spark needed."""
    from ordstream.balance.baselines import PKG
    from ordstream.fragments.exchange import NODE, Route
    from ordstream.spark.grouping import ScheduleFunction

    table = skewed(5_000)
    learner = od.DKG(variant="pkg").learner(4)
    learner.learn(table["key"])
    times = od.POSG().times()
    times.update_many(table["key"], table["key"].to_numpy() % 64 + 1.0)
    cuts = list(itertools.pairwise([0, 1, 70, 71, 2_500, 5_000]))
    for grouping in (
        lambda: PKG(4),
        lambda: learner.build(),
        lambda: od.DKG().fit(table["key"], 4),
        lambda: None,
    ):
        whole = Route(table.schema, (1,), 4, grouping())(table.to_batches()[0])
        route = Route(table.schema, (1,), 4, grouping())
        parts = [route(batch) for low, high in cuts for batch in table.slice(low, high - low).to_batches()]
        assert np.concatenate(parts).tolist() == whole.tolist()
        assert sorted(set(whole.tolist())) == [0, 1, 2, 3]
    function = cloudpickle.loads(
        cloudpickle.dumps(ScheduleFunction(FrozenPosg(4, times, seed=2), (table.schema.field("key"),)))
    )
    (whole,) = function(iter(table.to_batches()))
    parts = function(batch for low, high in cuts for batch in table.slice(low, high - low).to_batches())
    assert [node for part in parts for node in part.column(NODE).to_pylist()] == whole.column(
        NODE
    ).to_pylist()
    loads = np.bincount(
        whole.column(NODE).to_numpy(), weights=times.estimate_many(table["key"]), minlength=4
    )
    assert imbalance(loads) < 1


@pytest.mark.parametrize("kind", [pa.decimal128(10, 2), pa.decimal128(30, 2)])
def test_decimals_are_keys_and_columns_that_costs_may_depend_on(spark, kind):
    """Operators that measure are shed operators, whose cost key took no decimals."""
    prices = [None if n % 11 == 0 else Decimal(n % 7 * 25).scaleb(-2) for n in range(400)]
    table = pa.table({"ts": range(400), "price": pa.array(prices, kind)})
    out = pa.schema([*table.schema, ("n", pa.int64())])

    def seen(row, state, emit):
        state.n += 1
        emit((row.ts, row.price, state.n))

    pipeline = od.Pipeline(table.schema).map(tuple, schema=table.schema, name="f").key_by("price")
    pipeline = pipeline.process(seen, schema=out, state={"n": pa.int64()}, name="g")
    expected = run_serial(pipeline, table).table
    frame = spark.createDataFrame(table)
    weighed = Balancer("dkg")
    for grouping in (weighed, {"f": Balancer("posg")}, {"f": od.POSG(window=8)}):
        found = apply(pipeline, frame, order_by="ts", nodes=2, grouping=grouping).toArrow()
        assert found.equals(expected)
    assert weighed.maps["g"] is not None


def test_a_map_without_bytes_says_so(spark, row):
    grouping = {"scan_4": optimal_approximation([1, 2, 3], 2)}
    with pytest.raises(od.PlanError, match=r"has no bytes, and can't be sent.*Use od\.DKG"):
        apply(chain(front, last=False), row, order_by="ts", nodes=2, grouping=grouping)
