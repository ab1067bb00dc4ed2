"""Clicks joined with purchases within an hour: what a card did, and what it bought up to an hour later."""

from events import events

import ordstream as od

data = events()
clicks, purchases = od.Pipeline(data.schema).branch(od.col("shop") != "grocer")
result = (
    clicks.join_interval(purchases.drop("shop"), on="card", within=("0s", "1h"))
    .select("card", "ts", "shop", "ts_right", "cents_right")
    .run(data)
)

if __name__ == "__main__":
    print(result.table.slice(0, 5))
