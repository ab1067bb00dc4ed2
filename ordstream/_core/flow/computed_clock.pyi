from ordstream.operators.clocks import ComputedClock

class ComputedColumn:
    time_type: int
    def __init__(self, clock: ComputedClock) -> None: ...
