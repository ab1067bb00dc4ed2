"""Load-aware shedding (LAS): drop few tuples in front of an operator so that queueing latency keeps to a
goal.

The operator's execution time of a tuple depends on the tuple's key and is not known. `OperatorSide` learns
it (the matrices F and W) and sends what it learnt; `LoadAwareShedder` estimates from it how long each tuple
would wait and drops those that would break the goal, a replaceable `Goal`. `StrawMan` does the same with the
mean execution time, `FullKnowledge` with the true one: what the paper compares with. Nothing here has a
clock: times are the caller's, in one unit. In virtual time the same arithmetic runs as
`ordstream._core.lab.las_policy.Shedding`, in a node as `.shed(...)`.

Three things the paper leaves open. C-hat is never below the elapsed time. An admitted tuple carries C-hat
every `sync_every` tuples, not only after new matrices. Before the first matrices everything is admitted;
under overload that builds a backlog which shedding cannot undo, only keep from growing, so a shedder can
start from a model that was saved.

Source: Rivetti, Busnel, Querzoni, "Délestage avisé dans les systèmes de traitement de flux" (Algotel 2017),
section 3; POSG, Listings III.1, III.2 and eq. 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from ordstream._core.balance.cost_learner import CostLearner
from ordstream._core.balance.las import Balance, Check
from ordstream.balance.keys import Key, key_word
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError


class Goal(Protocol):
    """CHECK: the goal that queueing latency is held to. Any object with these methods will do."""

    def drops(self, latency: float) -> bool:
        """Whether admitting a tuple with this estimated latency would break the goal. Must change
        nothing.
        """

    def admit(self, latency: float) -> None:
        """A tuple with this estimated latency was admitted."""

    def drop(self) -> None:
        """A tuple was dropped."""


class _BuiltIn:
    """A goal that the core has as well."""

    kind: str

    def __init__(self, tau: float, *, most_dropped: float = 1.0) -> None:
        try:
            self._check = Check(self.kind, tau, most_dropped)
        except (TypeError, ValueError) as error:
            raise PlanError(f"{type(self).__name__}: {error}") from None
        self.tau = float(tau)
        self.most_dropped = float(most_dropped)

    def drops(self, latency: float) -> bool:
        """Whether a tuple with this estimated latency must be dropped. Pure."""
        return self._check.drops(latency)

    def admit(self, latency: float) -> None:
        """Count an admitted tuple."""
        self._check.admit(latency)

    def drop(self) -> None:
        """Count a dropped tuple."""
        self._check.drop()

    @property
    def admitted(self) -> int:
        """Tuples admitted so far."""
        return self._check.admitted

    @property
    def dropped(self) -> int:
        """Tuples dropped so far."""
        return self._check.dropped

    @property
    def mean_latency(self) -> float:
        """Mean estimated latency of the admitted tuples; 0.0 before the first."""
        return self._check.latency_sum / self._check.admitted if self._check.admitted else 0.0

    def compiled(self) -> Check:
        """A fresh check of this kind for the core."""
        return Check(self.kind, self.tau, self.most_dropped)

    def __repr__(self) -> str:
        cap = "" if self.most_dropped == 1.0 else f", most_dropped={self.most_dropped:g}"
        return f"{type(self).__name__}({self.tau:g}{cap})"


class AverageLatency(_BuiltIn):
    """The paper's goal (section 3): the mean estimated latency of all admitted tuples since the start is at
    most tau.

    A tuple is dropped if and only if (Q + q) / (count + 1) > tau and q > tau / 2. As long as the mean keeps
    to tau, as it does where every admission is by this rule, the first half implies q > tau: then this is
    the paper's rule. The second half is ours, for a mean that is above tau because of a cap, or of true
    latencies (the node): without it only a cap would admit anything, and nothing would bring the mean down.

    Parameters
    ----------
    tau : float
        In the caller's unit of time; infinite: nothing is dropped.
    most_dropped : float
        Cap: a tuple is admitted in any case where dropping it would bring the share of dropped tuples above
        this.

    Raises
    ------
    PlanError
        tau is negative, or the share not in 0..1.
    """

    kind = "average"


class MaximumLatency(_BuiltIn):
    """No tuple is to wait longer than tau: it is dropped if and only if its own estimated latency is larger.

    Parameters and errors as for `AverageLatency`.
    """

    kind = "maximum"


class OperatorSide:
    """What the protected operator does: measure every tuple, and send F and W when they are stable (Fig. 2).

    Parameters
    ----------
    window : int
        N, tuples between two looks at the matrices.
    tolerance : float
        mu, largest relative error eta (POSG, eq. 1) of matrices that count as stable.
    epsilon, delta : float
        Size of the matrices (`ordstream.balance.sketches.count_min_size`).
    seed : int
        Of the hash functions.

    Raises
    ------
    PlanError
        An argument is out of range.
    """

    def __init__(
        self,
        window: int = 1024,
        tolerance: float = 0.05,
        *,
        epsilon: float = 0.05,
        delta: float = 0.1,
        seed: int = 0,
    ) -> None:
        self._times = ExecutionTimes(epsilon, delta, seed=seed)
        try:
            self._learner = CostLearner(self._times.matrices, window, tolerance)
        except (TypeError, ValueError, OverflowError) as error:
            raise PlanError(str(error)) from None

    @property
    def state(self) -> str:
        """Fig. 2: "START" or "STABILIZING"."""
        return "STABILIZING" if self._learner.stabilizing else "START"

    @property
    def eta(self) -> float:
        """Relative error at the last look; infinite before the first."""
        return self._learner.eta

    @property
    def sent(self) -> int:
        """How often matrices were sent."""
        return self._learner.sent

    @property
    def times(self) -> ExecutionTimes:
        """F and W of the tuples since the last send."""
        return self._times

    def executed(self, key: Key, time: float) -> ExecutionTimes | None:
        """A tuple took `time`: the matrices to send to the shedder if they are stable now (F and W start
        again from zero).

        Raises
        ------
        ValueError
            The time is negative or not finite.
        """
        if not self._learner.update(key_word(key), time):
            return None
        stable = self._times.copy()
        self._learner.reset()
        return stable


class Offer(NamedTuple):
    """What became of a tuple.

    Attributes
    ----------
    dropped : bool
    latency : float
        Estimated queueing latency (q-hat).
    carried : float or None
        C-hat that the tuple carries to the operator, which answers with it at completion (`answer`); None
        for most tuples.
    """

    dropped: bool
    latency: float
    carried: float | None


class LoadAwareShedder:
    """The load shedder LS in front of one operator instance.

    Parameters
    ----------
    goal : Goal
        CHECK: `AverageLatency(tau)`, `MaximumLatency(tau)` or any object with their methods.
    model : ExecutionTimes, optional
        A saved cost model to start from; without one all is admitted until the operator has sent matrices.
    sync_every : int
        Admitted tuples from one synchronisation to the next; 0: only after new matrices, as the paper has
        it. Each is a message to the operator and one back; `Pipeline.shed`, which shares its memory, has 1.
    """

    def __init__(self, goal: Goal, model: ExecutionTimes | None = None, *, sync_every: int = 1024) -> None:
        try:
            self._balance = Balance(sync_every)
        except (TypeError, ValueError, OverflowError) as error:
            raise PlanError(str(error)) from None
        self.goal = goal
        self._model: ExecutionTimes | None = None
        if model is not None and model.tuples:
            self.receive(model)

    @property
    def informed(self) -> bool:
        """Whether there is a cost model; before, everything is admitted."""
        return self._balance.informed

    @property
    def cumulated(self) -> float:
        """C-hat: estimated execution time of the admitted tuples, idle time included."""
        return self._balance.cumulated

    @property
    def blind(self) -> int:
        """Tuples admitted without a cost model."""
        return self._balance.blind

    @property
    def model(self) -> ExecutionTimes | None:
        """The matrices received last."""
        return self._model

    def receive(self, matrices: ExecutionTimes) -> None:
        """Matrices from the operator: they replace the ones before, and the next admitted tuple carries
        C-hat (Fig. 1.B to D).
        """
        self._model = matrices
        self._balance.renewed()

    def latency(self, elapsed: float) -> float:
        """q-hat of a tuple that arrives when `elapsed` time has passed since the first emission. Pure."""
        return self._balance.backlog(elapsed)

    def offer(self, key: Key, elapsed: float, time: float | None = None) -> Offer:
        """A tuple arrives: drop or admit it.

        Parameters
        ----------
        key : Key
        elapsed : float
            Time since the first emission, never smaller than at the offer before.
        time : float, optional
            Its true execution time; used by `FullKnowledge` alone.

        Raises
        ------
        ValueError
            A time is not finite.
        """
        _check_elapsed(elapsed)
        latency = self._balance.backlog(elapsed)
        return self.decided(self.informed and self.goal.drops(latency), latency, key, elapsed, time)

    def decided(
        self, dropped: bool, latency: float, key: Key, elapsed: float, time: float | None = None
    ) -> Offer:
        """Second half of `offer`, for a decision that was made elsewhere: account for the tuple."""
        if dropped:
            self.goal.drop()
            return Offer(True, latency, None)
        if not self.informed:
            return Offer(False, latency, self._balance.admit(latency, elapsed, 0.0))
        estimate = self.estimate(key, time)  # may raise: nothing is counted then
        self.goal.admit(latency)
        return Offer(False, latency, self._balance.admit(latency, elapsed, estimate))

    def answer(self, carried: float, elapsed: float) -> bool:
        """The tuple that carried this C-hat was completed at `elapsed`: C-hat is corrected by the difference
        (Fig. 1.E).

        Parameters
        ----------
        carried : float
            As `offer` gave it.
        elapsed : float
            Time since the first emission.

        Returns
        -------
        bool
            False: it belongs to matrices that have been replaced since, and changed nothing.

        Raises
        ------
        ValueError
            The elapsed time is not finite. Nothing is changed then.
        """
        _check_elapsed(elapsed)
        return self._balance.answer(carried, elapsed)

    def estimate(self, key: Key, time: float | None) -> float:
        """Estimated execution time of a tuple (w-hat). There is a model."""
        assert self._model is not None
        return self._model.estimate(key)


def _check_elapsed(elapsed: float) -> None:
    if not math.isfinite(elapsed):
        raise ValueError(f"the elapsed time is not finite: {elapsed}")


class StrawMan(LoadAwareShedder):
    """LAS with the mean execution time in place of each tuple's: what a shedder does that takes all
    tuples for equal.
    """

    def estimate(self, key: Key, time: float | None) -> float:
        """The mean of all tuples in the matrices."""
        assert self._model is not None
        return self._model.mean_time


class FullKnowledge(LoadAwareShedder):
    """LAS with each tuple's true execution time: the best that estimates could reach."""

    def __init__(self, goal: Goal) -> None:
        super().__init__(goal, sync_every=0)
        self._balance.renewed()

    def estimate(self, key: Key, time: float | None) -> float:
        """The time that was passed."""
        if time is None:
            raise ValueError("full knowledge needs the tuple's execution time")
        if not 0 <= time < math.inf:
            raise ValueError(f"an execution time is negative or not finite: {time}")
        return time
