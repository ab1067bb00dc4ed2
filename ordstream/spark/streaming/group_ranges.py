"""Key groups, divided among nodes: what routes rows to nodes in a stream, and says whose which state is.

The group of a key is a function of its value that the checkpoint's format fixes (docs/checkpoint-format.md,
"Key groups"). A node has consecutive groups. So with another number of nodes each reads its own groups of
the files that hold them, and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ordstream._core.ground.arrow import core_schema
from ordstream._core.state.key_groups import GROUPS, KEY_HASH_VERSION, groups
from ordstream.balance.grouping import Instances
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.node.source import conform


class GroupRanges:
    """Key group g is that of node g k // 1024. Total, deterministic, immutable.

    Parameters
    ----------
    instances : int
        k, 1 to 1,024.
    """

    splits_keys = False

    def __init__(self, instances: int) -> None:
        if not 1 <= instances <= GROUPS:
            raise ValueError(f"key groups can be divided among 1 to {GROUPS} nodes, not {instances}")
        self.instances = instances

    def route(self, keys: Any) -> Instances:
        """The node of each key: int32 array. `keys`: a column, or a tuple of columns."""
        columns = keys if isinstance(keys, tuple) else (keys,)
        batch = pa.record_batch(list(columns), names=[f"k{number}" for number in range(len(columns))])
        found = groups(conform(batch, core_schema(batch.schema)))
        nodes: Instances = found * np.int32(self.instances) // np.int32(GROUPS)
        return nodes

    def groups_of(self, node: int) -> range:
        """The key groups of a node."""
        return range(-(-node * GROUPS // self.instances), -(-(node + 1) * GROUPS // self.instances))

    def nodes_of(self, groups: range) -> range:
        """The nodes that have any of these consecutive key groups."""
        if not groups:
            return range(0)
        return range(groups[0] * self.instances // GROUPS, groups[-1] * self.instances // GROUPS + 1)

    def to_bytes(self) -> bytes:
        """As bytes (`ordstream.balance.serial_form`)."""
        return packed("GroupRanges", {"instances": self.instances, "key_hash": KEY_HASH_VERSION}, {})

    @classmethod
    def from_bytes(cls, data: bytes) -> GroupRanges:
        """What `to_bytes` was called on. SketchBytesError for other bytes, or another hash of keys."""
        values, _ = unpacked("GroupRanges", data)
        if values.get("key_hash") != KEY_HASH_VERSION:
            raise SketchBytesError(
                f"key groups of hash {values.get('key_hash')!r}; this release has {KEY_HASH_VERSION}"
            )
        try:
            return cls(values["instances"])
        except (KeyError, ValueError, TypeError) as error:
            raise SketchBytesError(f"the bytes of these GroupRanges cannot be read: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return (GroupRanges.from_bytes, (self.to_bytes(),))

    def __repr__(self) -> str:
        return f"GroupRanges({self.instances})"
