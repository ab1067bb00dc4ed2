"""Snapshots: the state of a run at a point of the order, in memory and in files."""
