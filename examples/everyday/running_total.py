"""Running total: what each card has spent so far, beside each payment."""

from events import events

import ordstream as od

data = events()
result = od.Pipeline(data.schema).key_by("card").cum_sum("cents", "spent").run(data)

if __name__ == "__main__":
    print(result.table.slice(0, 5))
