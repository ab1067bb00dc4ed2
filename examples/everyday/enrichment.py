"""Enrichment: each payment with its shop's town and fee, from a table of strings."""

import pyarrow as pa
from events import events

import ordstream as od

data = events()
shops = pa.table({
    "shop": ["cinema", "Fuel station", "grocer"],  # the online shop is in no town
    "town": ["Roma", "Zürich", "Београд"],
    "fee": [3, 2, 1],
})  # fmt: skip
result = od.Pipeline(data.schema).join_lookup(shops, on="shop", how="left").run(data)

if __name__ == "__main__":
    print(result.table.slice(0, 5))
