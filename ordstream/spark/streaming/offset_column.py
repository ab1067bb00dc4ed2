"""The column by which our own sources say where a row stands in them."""

from __future__ import annotations

OFFSET = "_offset"
