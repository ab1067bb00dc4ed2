"""Exactly-once streaming over Structured Streaming: one manifest per micro-batch is the commit point."""
