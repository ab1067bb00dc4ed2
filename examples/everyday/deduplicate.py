"""Deduplicate within ten minutes: a card in one shop again counts once."""

from datetime import timedelta

from events import events

import ordstream as od

data = events()
result = od.Pipeline(data.schema).deduplicate(["card", "shop"], timedelta(minutes=10), time="ts").run(data)

if __name__ == "__main__":
    print(result.table.slice(0, 5))
