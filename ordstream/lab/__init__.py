"""Laboratory: the papers' experiments and the simulator. Nothing that users run imports it."""
