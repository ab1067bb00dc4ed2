"""Mixed between the epochs of a stream: the driver's side.

Behind each epoch the controller of a keyed fragment hears what the nodes tell of their keys, and decides
what moves. The decision is part of that epoch's manifest, and the next epoch carries it out: its rows go by
the new table, and its nodes take the moved keys' state from the files of the nodes that had them. With that
epoch's manifest the table is in force. So an epoch that is run again makes the same move; and a decision
whose epoch was not committed, or a move whose epoch was not, has not happened.

What an epoch with a move takes beside its fullest node's work, more than epochs without one do, is what the
move cost (`ordstream.balance.mixed.payback`). Where the work is next to nothing of the epoch, nothing moves.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream.balance.dkg import DKG
from ordstream.balance.keys import key_words
from ordstream.balance.mixed.controller import Controller, Move, check_live
from ordstream.balance.mixed.evidence import Evidence
from ordstream.balance.mixed.payback import Payback
from ordstream.balance.mixed.planners import Mixed
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.statistics import overload
from ordstream.balance.mixed.table import Assignment
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.errors import CheckpointError, PlanError
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.key_costs import NAMED, costed
from ordstream.spark.grouping import Choice, measured_by_key, with_costs
from ordstream.spark.streaming.epoch_files import read_whole
from ordstream.spark.streaming.epoch_functions import Begin
from ordstream.spark.streaming.epoch_manifest import STATE, Said
from ordstream.spark.streaming.key_costs import NO_GROUP
from ordstream.spark.streaming.moving import Moves, same_ring
from ordstream.spark.streaming.whole_epochs import way_back

#: What of a manifest's `balance` is not a figure.
_HELD = ("operator", "controller", "known")


def check_balance(fragments: Sequence[Fragment], grouping: Any, policy: Mixed) -> None:
    """Whether keys of this pipeline can move as a policy has it.

    Parameters
    ----------
    fragments : sequence of Fragment
    grouping : object
        As `od.spark.stream` was given it.
    policy : Mixed

    Raises
    ------
    PlanError
        There is no keyed operator, another grouping was asked for, or the policy has a window.
    SchemaError
        A key has a type that groupings can't take.
    """
    if not (isinstance(grouping, str) and grouping == "hash"):
        raise PlanError("balance takes the place of grouping=: give one of the two")
    check_live(policy)
    keyed = [fragment for fragment in fragments if fragment.key]
    if not keyed:
        raise PlanError("balance moves keys between nodes, and this pipeline has no keyed operator")
    for fragment in keyed:
        for index in fragment.key or ():
            key_words(pa.array([], fragment.source.field(index).type))


def timed(fragment: Fragment) -> Fragment | None:
    """The fragment with the execution times of its function measured by key; None: it runs none."""
    measured, key = measured_by_key(fragment)
    if not measured:
        return None
    return with_costs(fragment, Choice(fragment.operators[0].name, DKG(), key=key, measured=measured))


def figures(said: Said) -> dict[str, Any]:
    """What `StreamQuery.epochs` shows of a manifest's `balance`."""
    return {name: value for name, value in said.items() if name not in _HELD}


@dataclass
class FragmentBalance:
    """The controller of one fragment in one epoch, and the move that the epoch carries out.

    Attributes
    ----------
    controller : Controller
    move : Move or None
    groups : dict of int to int
        Key word -> key group of its state, where known.
    times : dict of int to float
        Key word -> seconds of a tuple in the function, as last measured.
    moves : Moves or None
        What of the states changes its node; None where more than the table may have changed.
    """

    controller: Controller
    move: Move | None
    groups: dict[int, int]
    times: dict[int, float]
    moves: Moves | None

    @classmethod
    def begun(
        cls, policy: Mixed, nodes: int, begin: Begin, number: int, said: Said | None
    ) -> FragmentBalance:
        """As the manifest in front says. A move that it decided on is carried out, but where the number of
        nodes is another one now: then it is given up, and a new one made for these nodes.

        Raises
        ------
        CheckpointError
            The file of what is known is damaged or gone.
        """
        payback = Payback(policy.payback, in_turn=True) if policy.payback else None
        controller = Controller(policy, nodes, NAMED, payback)
        groups, times = dict[int, int](), dict[int, float]()
        if said is not None:
            evidence, groups, times, data = _known(begin, said, payback)
            try:
                controller = Controller.from_bytes(data, policy, evidence, NAMED, payback)
            except SketchBytesError:  # another ring was asked for: all begins anew
                groups, times = {}, {}
                controller.payback = Payback(policy.payback, in_turn=True) if policy.payback else None
        before = begin.maps.get(number)
        if said is None and isinstance(before, Assignment) and same_ring(before, controller.assignment):
            controller.assignment = before  # balance was left out: keys stayed where they were
        if set(controller.assignment.ring.members) != set(range(nodes)):
            if controller.pending is not None:
                controller.cancel(controller.pending)
            controller.resize(nodes)
        made = cls(controller, controller.pending, groups, times, None)
        if begin.nodes == nodes and begin.cut_alike:
            made.moves = Moves.between(before, made.assignment, groups)
        return made

    @property
    def assignment(self) -> Assignment:
        """By which the epoch's rows go to nodes."""
        return self.controller.assignment if self.move is None else self.move.after

    def shares(self, slots: int | None) -> None:
        """So many tasks run at a time; None: it is not known."""
        if self.controller.payback is not None:
            self.controller.payback.processors = slots or None

    def said(
        self, begin: Begin, results: Sequence[Said], number: int, operator: str, ran: float, moves: int
    ) -> dict[str, Any]:
        """Behind the epoch: hear the nodes of the fragment, decide, and give what the manifest holds.

        Parameters
        ----------
        begin, results
            Of the epoch.
        number : int
            Of the fragment.
        operator : str
            Its first one.
        ran : float
            Seconds of the epoch's job.
        moves : int
            Fragments whose keys moved in it.
        """
        controller, payback = self.controller, self.controller.payback
        results = [one for one in results if one.get("fragment") == number]
        told = [one for one in results if "report" in one]
        reports = [Report.from_bytes(base64.b64decode(one["report"])) for one in told]
        times = [np.frombuffer(base64.b64decode(one["times"]), dtype="<f8") for one in told]
        costs, now = costed(reports, times, self.times)
        self.times |= now
        if self.move is not None:
            if payback is not None and (usual := payback.usual(controller.assignment)) is not None:
                loads = np.array([one.load for one in sorted(costs, key=lambda one: one.node)])
                extra = ran - payback.seconds(loads) - usual
                payback.costs.learn(len(self.move.keys), self.move.state, extra / moves)
            controller.commit(self.move)
        if payback is not None:
            payback.around({}, whole=ran)
        for one, report in zip(told, costs, strict=True):
            controller.report(report)
            found = np.frombuffer(base64.b64decode(one["groups"]), dtype="<i4")
            known = found != NO_GROUP
            self.groups.update(zip(report.keys[known].tolist(), found[known].tolist(), strict=True))
        following = controller.decide()
        tuples = _by_node(controller, {one.node: int(one.tuples.sum()) + one.rest[0] for one in reports})
        seconds = _by_node(controller, {one.node: float(one.seconds.sum() + one.rest[1]) for one in reports})
        return {
            "operator": operator,
            "version": controller.version,
            "table": len(controller.assignment),
            "tuples": tuples,
            "cpu_seconds": [round(one, 6) for one in seconds],
            "theta": round(overload(np.array(tuples, dtype=np.float64)), 6),
            "moved": _added([one["moved"] for one in results if "moved" in one]),
            "next": None if following is None else {"keys": len(following.keys), "bytes": following.state},
            "why": controller.why,
            "payback": None if payback is None else payback.figures(),
            "known": self._write(begin),
        }

    def _write(self, begin: Begin) -> dict[str, Any]:
        """The controller, and what is known of keys, into a file beside the states: manifests are kept for
        ever.
        """
        controller = self.controller
        named = np.union1d(controller.evidence.keys, controller.assignment.table[0])
        if controller.pending is not None:
            named = np.union1d(named, controller.pending.after.table[0])
        groups = [self.groups.get(one, NO_GROUP) for one in named.tolist()]
        times = [self.times.get(one, 0.0) for one in named.tolist()]
        evidence = controller.evidence.to_bytes().hex()
        columns: dict[str, Any] = {
            "words": named,
            "groups": np.array(groups, dtype=np.int32),
            "times": np.array(times),
        }
        values = {"evidence": evidence, "controller": controller.to_bytes(evidence=False).hex()}
        if controller.payback is not None:
            values["payback"] = controller.payback.to_bytes().hex()
        data = packed("KnownKeys", values, columns)
        with begin.files("") as files:
            return files.whole("keys", ".known", data)


def _known(
    begin: Begin, said: Said, payback: Payback | None
) -> tuple[Evidence, dict[int, int], dict[int, float], bytes]:
    path = Path(begin.folder) / STATE / said["known"]["file"]
    number = begin.number - 1
    try:
        values, arrays = unpacked("KnownKeys", read_whole(path, said["known"]))
        evidence = Evidence.from_bytes(bytes.fromhex(values["evidence"]))
        if payback is not None and "payback" in values:
            payback.read(bytes.fromhex(values["payback"]))
        held = said.get("controller")  # of an older release
        controller = bytes.fromhex(values["controller"]) if held is None else base64.b64decode(held)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: what is known of the keys behind epoch {number} can't be read: {error}. "
            + way_back(begin.folder, number, path)
        ) from error
    words, groups, times = (arrays[name].tolist() for name in ("words", "groups", "times"))
    return (
        evidence,
        {word: group for word, group in zip(words, groups, strict=True) if group != NO_GROUP},
        {word: time for word, time in zip(words, times, strict=True) if time > 0},
        controller,
    )


def _by_node(controller: Controller, found: Mapping[int, Any]) -> list[Any]:
    return [found.get(node, 0) for node in sorted(controller.assignment.ring.members)]


def _added(moved: Sequence[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    return {
        f"by_{why}": {what: sum(one[why][what] for one in moved) for what in ("keys", "rows", "bytes")}
        for why in ("plan", "ring")
    }
