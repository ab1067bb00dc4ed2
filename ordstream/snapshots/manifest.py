"""The manifest of a snapshot: what makes it one (docs/checkpoint-format.md, "Manifests")."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ordstream.errors import CheckpointError
from ordstream.ground.ordertags import OrderTag
from ordstream.snapshots.files import Damaged, checked_json, read_json
from ordstream.snapshots.snapshot import Snapshot

FORMAT = 1
KIND = "ordstream snapshot"


@dataclass(frozen=True)
class Parent:
    """The snapshot that a run went on from, or wrote before."""

    number: int
    sha256: str  # of its manifest's bytes


@dataclass(frozen=True)
class Manifest:
    """What `commits/NUMBER.json` holds.

    Attributes
    ----------
    number : int
        From 1, in the order in which snapshots were written.
    time : str
        When it was written: ISO 8601, UTC.
    parent : Parent or None
    snapshot : Snapshot
        Without states.
    states : mapping of str to mapping
        Operator name -> its file, the file's length, rows, and length and checksum of its index.
    sha256 : str
        Of the manifest's bytes.
    """

    number: int
    time: str
    parent: Parent | None
    snapshot: Snapshot
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sha256: str = ""

    @property
    def num_rows(self) -> int:
        """Rows of state."""
        return sum(state["rows"] for state in self.states.values())

    @property
    def num_bytes(self) -> int:
        """Bytes of the state files."""
        return sum(state["bytes"] for state in self.states.values())

    @property
    def file_names(self) -> set[str]:
        """Of its state files."""
        return {state["file"] for state in self.states.values()}

    def to_bytes(self) -> bytes:
        """The file's content.

        Raises
        ------
        CheckpointError
            The position is no JSON value.
        """
        snapshot = self.snapshot
        _check_position(snapshot.position)
        return checked_json(
            {
                "format": KIND,
                "version": FORMAT,
                "number": self.number,
                "time": self.time,
                "parent": None if self.parent is None else [self.parent.number, self.parent.sha256],
                "serial": snapshot.serial,
                "emitted_through": [snapshot.emitted_through.serial, snapshot.emitted_through.index],
                "last_output": [snapshot.last_output.serial, snapshot.last_output.index],
                "latest_time": snapshot.latest_time,
                **({"clock": snapshot.clock} if snapshot.clock else {}),
                "position": snapshot.position,
                "states": {name: dict(state) for name, state in self.states.items()},
                "models": _in_text(snapshot.models),
                **({"routes": _in_text(snapshot.routes)} if snapshot.routes else {}),
                **({"shed": dict(snapshot.shed)} if snapshot.shed else {}),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, number: int) -> Manifest:
        """What a file of this number holds.

        Raises
        ------
        Damaged
            It is not what was written, or was written under another number.
        CheckpointError
            It is of another format version.
        """
        content = read_json(data)
        if content.get("format") != KIND:
            raise Damaged("it is no manifest of a snapshot")
        if content["version"] != FORMAT:
            raise CheckpointError(
                f"it has format version {content['version']}; this version of ordstream reads {FORMAT}"
            )
        if content["number"] != number:
            raise Damaged(f"it is the manifest of snapshot {content['number']}")
        for state in content["states"].values():
            if not _plain(state["file"]):
                raise Damaged(f"it names the file {state['file']!r}, outside the folder of states")
        parent = content["parent"]
        return cls(
            number,
            content["time"],
            None if parent is None else Parent(*parent),
            Snapshot(
                serial=content["serial"],
                emitted_through=OrderTag(*content["emitted_through"]),
                latest_time=content["latest_time"],
                position=content["position"],
                models=_from_text(content["models"]),
                last_output=OrderTag(*content["last_output"]),
                routes=_from_text(content.get("routes", {})),
                clock=content.get("clock", ""),
                shed=content.get("shed", {}),
            ),
            content["states"],
            hashlib.sha256(data).hexdigest(),
        )


def _in_text(parts: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(part).decode("ascii") for name, part in parts.items()}


def _from_text(parts: Mapping[str, str]) -> dict[str, bytes]:
    return {name: base64.b64decode(part) for name, part in parts.items()}


def _check_position(position: Any) -> None:
    """A source must get back what it gave."""
    reason = "it comes back as another value"
    try:
        same = json.loads(json.dumps(position, allow_nan=False)) == position
    except (TypeError, ValueError) as error:
        same, reason = False, str(error)
    if not same:
        raise CheckpointError(
            f"the source's position can't be stored: {position!r:.200} is no JSON value ({reason}); let its "
            "position() give None, a bool, int, float or str, or a list or a dict with str keys of these"
        )


def _plain(name: str) -> bool:
    return not set(name) & set("/\\:\0") and name.strip(".") != ""
