"""Filter and map: large payments, their hour, their shop in lower case, in whole euros."""

from events import events

import ordstream as od

data = events()
result = (
    od.Pipeline(data.schema)
    .filter(od.col("cents") > 40_000)
    .with_columns(hour=od.col("ts").dt.hour(), shop=od.col("shop").str.lower())
    .select("card", "hour", "shop", euros=od.col("cents") // 100)
    .run(data)
)

if __name__ == "__main__":
    print(result.table.slice(0, 5))
