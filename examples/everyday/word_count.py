"""Word count: how often each word stands in the names of shops, whatever its case."""

from events import events

import ordstream as od

data = events()
result = (
    od.Pipeline(data.schema)
    .select(word=od.col("shop").str.lower().str.split(" "))
    .flat_map(od.explode("word"))
    .key_by("word")
    .aggregate(n=od.count(), emit="final")
    .run(data)
)

if __name__ == "__main__":
    print(result.table)
