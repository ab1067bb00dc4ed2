"""Two sources in one order: payments and refunds, merged by time; what each card has spent, after each."""

from events import events

import ordstream as od

data = events()
is_refund = [shop == "cinema" for shop in data["shop"].to_pylist()]
tables = {"refunds": data.filter(is_refund), "payments": data.filter([not one for one in is_refund])}
refunds = od.Pipeline(data.schema, source="refunds").with_columns(cents=-od.col("cents"))
payments = od.Pipeline(data.schema, source="payments")
both = od.union(refunds, payments)  # at one time: the refund first
result = both.key_by("card").cum_sum("cents", "spent").run(tables, merge_by="ts")

if __name__ == "__main__":
    print(result.table.slice(0, 5))
