"""Last three per key: each card's last payments, at the end of the stream."""

from events import events

import ordstream as od

data = events()
result = od.Pipeline(data.schema).key_by("card").tail(3).run(data)

if __name__ == "__main__":
    print(result.table.slice(0, 6))
