"""TPC-H's Q5 of a stream: what suppliers of a region sold in their own nation, every ten minutes."""

from orders import tables

import ordstream as od

data = tables()
orders, items = (od.Pipeline(data[name].schema, source=name) for name in ("orders", "lineitem"))
result = (
    items.join_interval(orders, on="orderkey", within=("-10m", "0s"), time="ts")
    .join_lookup(data["customer"], on="custkey")
    .join_lookup(data["supplier"], on="suppkey")
    .filter(od.col("nation") == od.col("home"))
    .join_lookup(data["nation"], on="nation")
    .filter(od.col("region") == "A")
    .with_columns(revenue=od.col("cents") * (100 - od.col("discount")))
    .key_by("nation").window(od.tumbling("10m"), time="ts").aggregate(revenue=od.sum("revenue"))
    .run({name: data[name] for name in ("orders", "lineitem")}, merge_by="ts")
)  # fmt: skip

if __name__ == "__main__":
    print(result.table.slice(0, 5))
