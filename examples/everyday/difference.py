"""Difference to the last row: how long ago, and how much more, than the card's payment before."""

from events import events

import ordstream as od

data = events()
result = (
    od.Pipeline(data.schema)
    .key_by("card").diff("ts", "since")
    .key_by("card").diff("cents", "more")
    .run(data)
)  # fmt: skip

if __name__ == "__main__":
    print(result.table.slice(0, 5))
