"""The manifest of an epoch: what makes a micro-batch committed (docs/checkpoint-format.md, "Streams")."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ordstream.errors import CheckpointError
from ordstream.snapshots.files import Damaged, checked_json, read_json

#: Version 2 is version 1 with `balance`; version 3 has maps of key groups and of POSG; in version 4 what is
#: large lies in files: maps, and controllers. The oldest that can say it is written.
FORMAT, BALANCED, ROUTED, FILED = 1, 2, 3, 4
KIND = "ordstream epoch"
#: Folders in which a manifest names files.
STATE, OUTPUT, WAITING, LATE = "state", "output", "waiting", "late"
FOLDERS = (STATE, OUTPUT, WAITING, LATE)

Said = Mapping[str, Any]


@dataclass(frozen=True)
class EpochManifest:
    """What `commits/NUMBER.json` of a stream holds.

    Attributes
    ----------
    number : int
        Of the micro-batch, as Spark counts: from 0.
    time : str
        When it was written: ISO 8601, UTC.
    parent : [int, str] or None
        Number and SHA-256 of the manifest in front.
    query, spark, run : str
        Ids: of this checkpoint, of Spark's query, of the run that wrote it.
    serials : [int, int]
        First and last serial that the epoch gave; the last is first - 1 where it gave none.
    emitted_through : [int, int]
        Serial and index: all outputs up to here are in this epoch or in one before.
    latest_time : int or None
        Of punctuations, as in a snapshot's manifest.
    input : mapping
        `rows` that Spark gave and their `digest`.
    ingress : mapping
        `last`: the row that got the last serial, its columns of `order_by`, an Arrow stream in base64, or
        null; `latest`: the largest time seen, in its units, or null.
    late : int
        Rows of this batch that came too late.
    nodes : int
        In how many nodes the fragments ran.
    maps : mapping of str to str or mapping
        Fragment (from 1) -> what chose the nodes of its rows: key groups, a deployed map, a routing table,
        or, of the stateless fragment, POSG's. Base64; a large one is `file`, `bytes` and `crc32`, in the
        folder `state`. Keyed fragments without one (older versions): by the hash of the core.
    states : mapping of str to sequence of mapping
        Operator -> per node `node`, `file`, `bytes`, `rows`, `index`, `index_crc32`; of no node where no
        row has come to the operator yet.
    output, waiting, late_output : sequence of mapping
        `file`, `bytes`, `rows`, `crc32`; waiting: at most one.
    finished : bool
        The stream has ended here.
    balance : mapping of str to mapping
        Fragment (from 1) whose keys move between epochs -> `known` (the file of its controller behind this
        epoch, with the move that the next one carries out and what it knows of keys, in the folder `state`),
        and figures of the epoch. Version 2 has the controller beside, as `controller`.
    figures : mapping
        What the epoch took; for people.
    sha256 : str
        Of the manifest's bytes.
    """

    number: int
    time: str
    parent: Sequence[Any] | None
    query: str
    spark: str
    run: str
    serials: tuple[int, int]
    emitted_through: tuple[int, int]
    latest_time: int | None
    input: Said
    ingress: Said
    late: int
    nodes: int
    maps: Mapping[str, str | Said]
    states: Mapping[str, Sequence[Said]]
    output: Sequence[Said]
    waiting: Sequence[Said]
    late_output: Sequence[Said]
    finished: bool = False
    balance: Mapping[str, Said] = field(default_factory=dict)
    figures: Said = field(default_factory=dict)
    sha256: str = ""

    def to_bytes(self) -> bytes:
        """The file's content."""
        content = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "sha256"}
        if not content["balance"]:
            del content["balance"]
        filed = self.balance or any(not isinstance(one, str) for one in self.maps.values())
        version = FILED if filed else ROUTED if self.maps else FORMAT
        return checked_json({"format": KIND, "version": version, **content})

    @classmethod
    def from_bytes(cls, data: bytes, number: int) -> EpochManifest:
        """What a file of this number holds.

        Raises
        ------
        Damaged
            It is not what was written, or was written under another number.
        CheckpointError
            It is of another format version.
        """
        content = read_json(data)
        if content.pop("format", None) != KIND:
            raise Damaged("it is no manifest of an epoch")
        version = content.pop("version")
        if version not in (FORMAT, BALANCED, ROUTED, FILED):
            raise CheckpointError(
                f"it has format version {version}; this version of ordstream reads {FORMAT} to {FILED}"
            )
        if content["number"] != number:
            raise Damaged(f"it is the manifest of epoch {content['number']}")
        made = cls(**content, sha256=hashlib.sha256(data).hexdigest())
        for _, name in made.names():
            if set(name) & set("/\\:\0") or not name.strip("."):
                raise Damaged(f"it names the file {name!r}, outside the folders of the stream")
        return made

    def names(self) -> Iterator[tuple[str, str]]:
        """(folder, name) of every file that it names."""
        for parts in self.states.values():
            for part in parts:
                yield STATE, part["file"]
        for one in self.beside():
            yield STATE, one["file"]
        for folder, files in ((OUTPUT, self.output), (WAITING, self.waiting), (LATE, self.late_output)):
            for one in files:
                yield folder, one["file"]

    def beside(self) -> Iterator[Said]:
        """What it says of files that lie beside the states: maps, and what controllers know."""
        for said in self.maps.values():
            if not isinstance(said, str):
                yield said
        for one in self.balance.values():
            yield one["known"]

    @property
    def next_serial(self) -> int:
        """The serial that the next row gets."""
        return self.serials[1] + 1

    @property
    def state_rows(self) -> int:
        """Rows of state, of all operators."""
        return sum(part["rows"] for parts in self.states.values() for part in parts)

    @property
    def state_bytes(self) -> int:
        """Bytes of the state files."""
        return sum(part["bytes"] for parts in self.states.values() for part in parts)
