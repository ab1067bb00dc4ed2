"""A fraud rule in Python (with --compiled by Numba): three payments in a minute, all below 100 euros."""

import sys

from events import events

import ordstream as od


def rule(row, state, emit):
    near = row.at - state.latest < 60_000
    state.small = (state.small + 1 if near else 1) if row.cents < 10_000 else 0
    state.latest = row.at
    if state.small >= 3:
        emit(row.card, row.at, state.small)


kinds, fields = {"card": int, "at": int, "n": int}, {"small": int, "latest": int}
data = events()
keyed = od.Pipeline(data.schema).with_columns(at=od.col("ts").cast(int)).key_by("card")
result = keyed.process(rule, schema=kinds, state=fields, compiled="--compiled" in sys.argv).run(data)

if __name__ == "__main__":
    print(result.table.slice(0, 5))
