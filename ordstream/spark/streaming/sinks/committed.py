"""What a stream has committed, as sinks take it, and whether a sink has the same."""

from __future__ import annotations

from ordstream.ground.ordertags import OrderTag
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.epoch_manifest import OUTPUT, EpochManifest
from ordstream.spark.streaming.sinks.sink import Epoch, OutputFile, Sink


def epoch_of(log: EpochLog, manifest: EpochManifest) -> Epoch:
    """A committed epoch as sinks take it."""
    files = [
        OutputFile(log.folder / OUTPUT / one["file"], one["rows"], one["bytes"], one.get("crc32", ""))
        for one in manifest.output
    ]
    return Epoch(manifest.number, files, OrderTag(*manifest.emitted_through))


def held_again(log: EpochLog, sink: Sink, newest: int) -> Epoch | None:
    """The newest epoch of a sink that goes back, where it is committed too: handed to the sink again it is
    compared. A stream that was taken back may have committed others in the place of those that it has.
    """
    through = sink.delivered()
    if through is None or not 0 <= through <= newest or not callable(getattr(sink, "back_to", None)):
        return None
    epoch = epoch_of(log, log.read(through))
    return epoch if all(file.path.exists() for file in epoch.files) else None
