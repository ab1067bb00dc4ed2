"""For tests of pipelines: the sequential reference."""

from ordstream.reference.run_serial import SerialResult, run_serial

__all__ = ["SerialResult", "run_serial"]
