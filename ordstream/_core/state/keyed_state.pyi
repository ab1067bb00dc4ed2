from collections.abc import Sequence

class KeySpecOwner:
    def __init__(self, columns: Sequence[int], types: Sequence[int]) -> None: ...
