"""The controller: hears every node's report after each interval, decides when keys move, and keeps the route
table in force.

It moves nothing itself. A decision is a `Move`: a new route table with a version, the keys that change
their node, and the plan's figures. Whoever carries it out says `commit`, from when on the new table is in
force, or `cancel` at any step before: then the old table is still in force, as if nothing had been decided.
There is one move at a time.

When keys move: there are as many tuples as the loads' estimate needs (`evidence.needed`); an instance is
above L_max by more than what chance does; and the plan takes off more than that. A plan aims at an eighth of
θ_max, or at half of it where that moves much less, so that noise around a balanced state does not set off
the next one. A θ_max below 2 % is as 2 %. With a `Payback` it must also pay: what it would have saved since
the last move must have come to what it costs.

Chance is what the number of tuples leaves open, each tuple costing by itself. What makes all tuples of a key
dearer for an interval is a change.

A decision is a function of the reports and of the calls before it: no clock, nothing random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.grouping import Instances
from ordstream.balance.keys import Words
from ordstream.balance.mixed.evidence import FINEST, Evidence, needed
from ordstream.balance.mixed.expected import expected
from ordstream.balance.mixed.payback import Payback, Weighed
from ordstream.balance.mixed.planners import Mixed, Plan
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.statistics import Floats, Statistics, overload
from ordstream.balance.mixed.table import Assignment
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.errors import PlanError

#: Standard deviations by which a load must be above its bound. Plans aim below it, so that a balanced
#: stationary stream, whose loads are no nearer to it than half of θ_max, does not get there by chance.
CHANCE = 5.0
#: A plan for this part of θ_max is taken where it moves at most so many times what one for half of it does:
#: what stays above the mean is throughput lost until the next plan.
FINE, LITTLE_MORE = 8, 2.0

#: Of a move, beside its tables and columns.
_FIGURES = ("version", "state", "theta_before", "theta_after", "limiting", "gain", "cost")


@dataclass(frozen=True, eq=False)
class Move:
    """Keys that are to change their node, and the route table in force afterwards.

    Attributes
    ----------
    version : int
        Of the new table; higher than all before it, also those of moves that were cancelled.
    before, after : Assignment
    keys : uint64 array
        Δ: the known keys that change their node, ascending. Unknown ones with state change theirs where the
        ring changed: a node finds them with `changes`.
    source, destination : int32 arrays
        Of each key.
    by_ring : bool array
        The key moves because instances came or went; else by the plan.
    state : float
        Bytes that move, as last reported.
    theta_before, theta_after : float
        Overload of the fullest instance by the costs known.
    limiting : int or None
        Word of the key that keeps the plan from its bound.
    gain, cost : float
        Seconds: what it would have saved since the last move, and what it is expected to cost; 0 without a
        `Payback`.
    """

    version: int
    before: Assignment
    after: Assignment
    keys: Words
    source: Instances
    destination: Instances
    by_ring: npt.NDArray[np.bool_]
    state: float
    theta_before: float
    theta_after: float
    limiting: int | None = None
    gain: float = 0.0
    cost: float = 0.0

    def changes(self, keys: Words) -> npt.NDArray[np.bool_]:
        """Which of any keys change their node."""
        return np.not_equal(self.before.route_words(keys), self.after.route_words(keys))

    def __repr__(self) -> str:
        ring = int(self.by_ring.sum())
        return (
            f"Move(version={self.version}, keys={len(self.keys)} ({ring} by the ring), "
            f"state={self.state:.0f} bytes, theta {self.theta_before:.3f} -> {self.theta_after:.3f}, "
            f"table={len(self.after)})"
        )


def go_on() -> None:
    """Nobody waits."""


def check_live(policy: Mixed) -> None:
    """Whether a run can keep to a policy.

    Parameters
    ----------
    policy : Mixed

    Raises
    ------
    PlanError
        Its window w is not 1 (section 2.1): nodes report the state that there is when they do, over however
        many intervals their operators keep it.
    """
    if policy.window != 1:
        raise PlanError(
            f"balance: window={policy.window} does nothing in a run, where a key's state is what its node "
            "has of it, for as long as its operators keep it; leave window out (a StateWindow takes it, for "
            "plans from statistics of your own)"
        )


class Controller:
    """Decides which keys move, from the nodes' reports. One caller.

    Parameters
    ----------
    policy : Mixed
        PlanError where no run can keep to it (`check_live`).
    instances : int or sequence of int
        N_D, or the nodes' numbers.
    most : int, optional
        As the attribute.
    payback : Payback, optional
        Weighs plans against what they cost. None: a plan that is due is carried out.

    Attributes
    ----------
    assignment : Assignment
        The route table in force.
    version : int
        Its version, from 0.
    pending : Move or None
        Decided, and neither committed nor cancelled.
    why : str
        What the last `decide` found, in words.
    limiting : int or None
        Word of the key that kept the last plan from its bound.
    most : int or None
        Keys that are known by name, beside those in the table; None: all.
    between : callable
        Called now and then while it decides, from between two steps: others can have the interpreter there.
    """

    def __init__(
        self,
        policy: Mixed,
        instances: int | Sequence[int],
        most: int | None = None,
        payback: Payback | None = None,
    ) -> None:
        check_live(policy)
        self.policy, self.most, self.payback = policy, most, payback
        self.assignment = Assignment(policy.ring(instances))
        self.version = 0
        self.pending: Move | None = None
        self.why = "no report yet"
        self.limiting: int | None = None
        self.evidence = Evidence(needed(policy.theta, self.assignment.instances))
        self.between: Callable[[], None] = go_on
        self._issued = 0  # versions given so far
        self._last: dict[int, int] = {}  # node: its last interval
        self._waiting: list[Report] = []  # of the interval that is being collected

    # ------------------------------------------------------------------------------------------- reports

    def report(self, one: Report) -> bool:
        """Take in a node's report; False: it was taken in before, is older than one that was, or comes
        late from a node that is gone.

        Raises
        ------
        PlanError
            The node is, and was, none of the ring's.
        """
        if one.node not in self.assignment.ring.members:
            if one.node in self._last:
                return False
            members = ", ".join(map(str, self.assignment.ring.members))
            raise PlanError(f"a report of node {one.node}, but the nodes are {members}")
        if one.interval <= self._last.get(one.node, -1):
            return False
        self._last[one.node] = one.interval
        self._waiting.append(one)
        return True

    def _collect(self) -> None:
        for interval in sorted({one.interval for one in self._waiting}):
            reports = [one for one in self._waiting if one.interval == interval]
            self.evidence.add(reports)
            if self.payback is not None:
                self.payback.add(reports, self.assignment, self.most)
        self._waiting = []
        if self.most is not None:
            self.evidence.bound(self.most, self.assignment.table[0], self.assignment.route_words)

    # ------------------------------------------------------------------------------------------ decisions

    def decide(self) -> Move | None:
        """At the end of an interval, when its reports are in: what is to move now, None: nothing (`why`)."""
        self._collect()
        self.between()
        evidence, policy = self.evidence, self.policy
        if self.pending is not None:
            return self._nothing(f"the move to version {self.pending.version} is under way")
        if not evidence.enough:
            seen = min(evidence.total, evidence.fresh)
            return self._nothing(f"{seen:,.0f} tuples of the {evidence.least:,} that a plan needs")
        keys, given = self._statistics(self.assignment)
        self.between()
        loads = given.loads()
        _, rest = self._rest(self.assignment)
        noise = CHANCE * evidence.deviations(self._placed(given, evidence.keys), given.instances, rest)
        limit = given.limit(max(policy.theta, FINEST))
        self.limiting = None
        if not (loads - limit > noise).any():
            return self._nothing(f"balanced: theta {overload(loads):.3f}")
        plan = self._plan(given)
        self.between()
        if plan.limiting is not None:
            self.limiting = int(keys[plan.limiting])
        gain = float(loads.max() - plan.loads.max())
        if not plan.moved.any() or gain <= float(noise[int(np.argmax(loads))]):
            return self._nothing(f"theta {overload(loads):.3f}: no plan takes off more than chance does")
        after = self.assignment.after(keys, plan)
        if self.payback is None:
            return self._propose(after, self.assignment, (keys, given))
        return self._worth(self.payback, after, (keys, given), noise)

    def resize(self, instances: int | Sequence[int]) -> Move | None:
        """Nodes come or go: the keys that the ring moves, and in the same move those of a plan, if one is
        due under the new ring. None: they are the nodes there are.

        Raises
        ------
        PlanError
            A move is under way: commit or cancel it first.
        """
        self._collect()
        if self.pending is not None:
            raise PlanError(f"the move to version {self.pending.version} is under way; cancel it first")
        ring = self.policy.ring(instances)
        if set(ring.members) == set(self.assignment.ring.members):
            return self._nothing("the nodes are these already")
        moved = self.assignment.on(ring)
        after = moved
        if self.evidence.total >= self.evidence.least * (1 - 1e-9):
            keys, given = self._statistics(moved)
            if overload(given.loads()) > max(self.policy.theta, FINEST):
                after = moved.after(keys, self._plan(given))
        return self._propose(after, moved)

    def commit(self, move: Move) -> None:
        """The move is done: its table is in force. PlanError where it is not the one under way."""
        self._check(move)
        members = sorted(move.after.ring.members)
        if members != sorted(self.assignment.ring.members):
            self.evidence.spread_rest(members)
        self.assignment, self.version, self.pending = move.after, move.version, None
        self.evidence.least = needed(self.policy.theta, self.assignment.instances)
        self._restart()

    def cancel(self, move: Move) -> None:
        """The move is given up, at whatever step: the table before it stays in force. Its version is not
        used again, and the next plan waits for as many new tuples as a plan needs.
        """
        self._check(move)
        self.pending = None
        self._restart()

    def _restart(self) -> None:
        self.evidence.restart()
        if self.payback is not None:
            self.payback.restart()

    # ------------------------------------------------------------------------------------------- as bytes

    def to_bytes(self, evidence: bool = True) -> bytes:
        """The tables, the evidence and the move under way as bytes, for a manifest. Not the policy.
        `evidence`: whether it is among them, and what `payback` has seen: what is as large as the keys are
        many.
        """
        self._collect()
        values: dict[str, Any] = {
            "assignment": self.assignment.to_bytes().hex(),
            "version": self.version,
            "issued": self._issued,
            "last": sorted(self._last.items()),
        }
        if evidence:
            values["evidence"] = self.evidence.to_bytes().hex()
            if self.payback is not None:
                values["payback"] = self.payback.to_bytes().hex()
        arrays: dict[str, npt.NDArray[Any]] = {}
        move = self.pending
        if move is not None:
            values["move"] = {name: getattr(move, name) for name in _FIGURES}
            values["after"] = move.after.to_bytes().hex()
            arrays = {name: getattr(move, name) for name in ("keys", "source", "destination")}
            arrays["by_ring"] = move.by_ring.astype(np.int32)
        return packed("Controller", values, arrays)

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        policy: Mixed,
        evidence: Evidence | None = None,
        most: int | None = None,
        payback: Payback | None = None,
    ) -> Controller:
        """The controller that `to_bytes` was called on. It goes on as that one would: the same move is
        under way. `evidence`: in place of the one in the bytes. `payback`: goes on from what is in the
        bytes, where it is there.

        Raises
        ------
        SketchBytesError
            These are not such bytes, or the policy has another ring.
        """
        values, arrays = unpacked("Controller", data)
        try:
            assignment = Assignment.from_bytes(bytes.fromhex(values["assignment"]))
            ring = assignment.ring
            if (ring.points, ring.seed) != (policy.points, policy.seed):
                raise ValueError(f"its ring has {ring.points} points, seed {ring.seed}")
            made = cls(policy, ring.members, most, payback)
            if payback is not None and "payback" in values:
                payback.read(bytes.fromhex(values["payback"]))
            made.assignment, made.version = assignment, int(values["version"])
            made.evidence = evidence or Evidence.from_bytes(bytes.fromhex(values["evidence"]))
            made._last = {int(node): int(at) for node, at in values["last"]}
            made._issued = int(values["issued"])
            if "move" in values:
                after = Assignment.from_bytes(bytes.fromhex(values["after"]))
                columns: dict[str, Any] = arrays | {"by_ring": arrays["by_ring"].astype(np.bool_)}
                made.pending = Move(before=assignment, after=after, **columns, **values["move"])
        except (KeyError, ValueError, TypeError, PlanError) as error:
            raise SketchBytesError(f"the bytes of this Controller cannot be read: {error}") from error
        return made

    # ---------------------------------------------------------------------------------------------- parts

    def _statistics(self, assignment: Assignment) -> tuple[Words, Statistics]:
        known, fixed = self.evidence, self._rest(assignment)[0]
        _, of = np.unique(self.assignment.route_words(known.keys), return_inverse=True)
        cost = expected(known.cost, known.tuples, known.noise, of, self.assignment.instances)
        return assignment.statistics(known.keys, cost, known.state, fixed)

    def _rest(self, assignment: Assignment) -> tuple[Floats, Floats]:
        """Cost and square of the keys without a name at each instance of an assignment."""
        members = sorted(assignment.ring.members)
        return self.evidence.rest_by(members, members != sorted(self.assignment.ring.members))

    def _placed(self, given: Statistics, keys: Words) -> npt.NDArray[np.int32]:
        return given.placed[: len(keys)]  # `Assignment.statistics` puts keys that were not met behind

    def _plan(self, given: Statistics) -> Plan:
        """Mixed's plan for half of θ_max, or for an eighth where that moves little more; for θ_max itself
        where neither has a plan within its bounds.
        """
        theta = max(self.policy.theta, FINEST)
        fine, half = (replace(self.policy, theta=theta / part).plan(given) for part in (FINE, 2))
        if fine.feasible and (not half.feasible or fine.migration <= LITTLE_MORE * half.migration):
            return fine
        if half.feasible:
            return half
        plans, limit = (half, replace(self.policy, theta=theta).plan(given)), given.limit(theta)
        return min(plans, key=lambda plan: (not plan.table_fits, plan.loads.max() > limit, plan.loads.max()))

    def _worth(
        self, payback: Payback, after: Assignment, known: tuple[Words, Statistics], noise: Floats
    ) -> Move | None:
        """The plan, or the part of it that pays best; None: no part has paid yet."""
        keys, given = known
        before, to = self.assignment.route_words(keys), after.route_words(keys)
        moved = np.flatnonzero(before != to)
        _, key_s, byte_s = payback.costs.each
        worth = given.cost[moved] / (key_s + byte_s * given.state[moved])
        moved = moved[np.lexsort((keys[moved], -worth))]
        weighed = payback.weigh(self.assignment, keys[moved], to[moved], given.state[moved])
        self.between()
        payback.plans += 1
        weighed.sort(key=lambda one: one.cost - one.gain)
        loads = given.loads()
        for one in weighed:
            if one.gain < payback.times * one.cost:
                continue
            part = moved[: one.keys]
            table = after if one.keys == len(moved) else self._with(keys[part], to[part])
            then = given.loads(self.assignment._positions(table.route_words(keys)))
            most = self.policy.table
            fits = most is None or len(table) <= max(most, len(self.assignment))
            if fits and loads.max() - then.max() > float(noise[int(np.argmax(loads))]):
                payback.gain, payback.cost = payback.gain + one.gain, payback.cost + one.cost
                return self._propose(table, self.assignment, known, one)
        payback.put_off += 1
        best = weighed[0]
        return self._nothing(
            f"theta {overload(loads):.3f}, put off: to move {best.keys:,} of {len(moved):,} keys would have "
            f"saved {best.gain:.3f} s since the last move, and costs about {best.cost:.3f} s"
        )

    def _with(self, keys: Words, to: npt.NDArray[np.int32]) -> Assignment:
        """The table in force but for these keys."""
        order = np.argsort(keys, kind="stable")
        return self.assignment.moved(keys[order], to[order])

    def _nothing(self, why: str) -> Move | None:
        self.why = why
        return None

    def _propose(
        self,
        after: Assignment,
        on: Assignment,
        known: tuple[Words, Statistics] | None = None,
        weighed: Weighed | None = None,
    ) -> Move | None:
        """`on`: the table in force, on the ring that is to be; `known`: its `_statistics`."""
        keys, before = known or self._statistics(self.assignment)
        self.between()
        source, between, to = (one.route_words(keys) for one in (self.assignment, on, after))
        moved = np.flatnonzero(source != to)
        moved = moved[np.argsort(keys[moved], kind="stable")]
        self._issued += 1
        self.between()
        _, then = self._statistics(after)
        self.pending = Move(
            version=self._issued,
            before=self.assignment,
            after=after,
            keys=keys[moved],
            source=source[moved],
            destination=to[moved],
            by_ring=(source != between)[moved],
            state=float(before.state[moved].sum()),
            theta_before=overload(before.loads()),
            theta_after=overload(then.loads()),
            limiting=self.limiting,
            gain=0.0 if weighed is None else weighed.gain,
            cost=0.0 if weighed is None else weighed.cost,
        )
        self.why = repr(self.pending)
        return self.pending

    def _check(self, move: Move) -> None:
        if self.pending is None or move.version != self.pending.version:
            under_way = "none" if self.pending is None else f"version {self.pending.version}"
            raise PlanError(f"the move to version {move.version} is not under way: {under_way} is")
