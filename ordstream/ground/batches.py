"""How many rows a batch has where nothing else says so.

The same at both ends: what only passes is then handed on in one piece. The core's output has as many
(`_core/flow/egress.pyx`).
"""

from __future__ import annotations

BATCH_ROWS = 65_536
