"""POSG: shuffle grouping that estimates each tuple's execution time and sends it to the least loaded
instance.

For stateless operators, whose tuples may go anywhere. Instances measure execution times in small matrices
(`PosgInstance`), the scheduler assigns by them (`PosgScheduler`), and synchronisation keeps its picture of
the load true. Between the two go messages, which may be lost, late, or come twice: then the scheduler works
with what it has, and the next synchronisation starts afresh. `FrozenPosg` is a scheduler that hears nothing
more and therefore decides the same every time.

Source: Rivetti, Anceaume, Busnel, Querzoni, Sericola, "Proactive Online Scheduling for Shuffle Grouping in
Distributed Stream Processing Systems", sections III and V-A. What the text leaves open is settled in
docs/balance.md, section POSG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.balance import cost_learner, count_min, hashing, posg
from ordstream.balance.grouping import Instances
from ordstream.balance.keys import Key, key_word, key_words
from ordstream.balance.parameters import MOST_INSTANCES, check_numbers
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.balance.sketches import ExecutionTimes, count_min_size
from ordstream.errors import PlanError
from ordstream.ground.numbers import is_whole


@dataclass(frozen=True)
class Matrices:
    """Message of an instance to the scheduler: its matrices F and W, once they are stable (Fig. 1.B).

    Attributes
    ----------
    instance : int
    version : int
        The how-manieth that this instance sent, from 1: a scheduler ignores older ones than it holds.
    times : ExecutionTimes
        A copy; the instance's own were reset.
    """

    instance: int
    version: int
    times: ExecutionTimes


@dataclass(frozen=True)
class SyncRequest:
    """What the scheduler sends along with a tuple (Fig. 1.D).

    Attributes
    ----------
    position : int
        The tuple, counted from 0 over all that this scheduler routed.
    instance : int
        Where that tuple goes.
    epoch : int
        Of the synchronisation; the reply names it.
    c_hat : float
        The scheduler's estimate of the instance's cumulated execution time, that tuple included.
    """

    position: int
    instance: int
    epoch: int
    c_hat: float


@dataclass(frozen=True)
class SyncReply:
    """An instance's answer to a request (Fig. 1.E): `delta` = its clock when it had executed the tuple -
    the request's C^.
    """

    instance: int
    epoch: int
    delta: float


@dataclass(frozen=True)
class POSG:
    """Parameters of POSG; makes the scheduler and the instances, which must share them.

    Parameters
    ----------
    instances : int, optional
        k, instances of the operator, 1 to 2^20. Default: a job decides (`ordstream.spark.apply`).
    window : int
        N: an instance looks at its matrices after every N tuples. Default 1,024.
    mu : float
        Largest relative error of matrices that are sent (equation 1), >= 0. Default 0.05.
    epsilon, delta : float
        Size of the matrices (`count_min_size`). Default 0.05 and 0.1: 4 rows, 55 columns.
    resync : int, optional
        Tuples between two synchronisations while no matrices come; 0: none. Default N k. Without it the
        estimates of k instances, each with an error of its own, drift apart.
    seed : int
        Of the hash functions.

    Raises
    ------
    PlanError
        An argument is out of range.
    """

    instances: int | None = None
    window: int = 1024
    mu: float = 0.05
    epsilon: float = 0.05
    delta: float = 0.1
    resync: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole = ("instances", "window", "resync", "seed")
        check_numbers(self, ("mu", "epsilon", "delta"), whole, "instances resync")
        if self.instances is not None and not 1 <= self.instances <= MOST_INSTANCES:
            raise PlanError(f"POSG: instances must be 1 to 2^20, not {self.instances}")
        if not 1 <= self.window < 2**40:
            raise PlanError(f"POSG: the window N must be 1 to 2^40 tuples, not {self.window}")
        if not self.mu >= 0:
            raise PlanError(f"POSG: the tolerance mu must be >= 0, not {self.mu}")
        if self.resync is not None and not 0 <= self.resync < 2**62:
            raise PlanError(f"POSG: resync must be a number of tuples, 0 for none, not {self.resync}")
        count_min_size(self.epsilon, self.delta, "POSG")
        self.times()

    @property
    def k(self) -> int:
        """The number of instances. PlanError where it was left open."""
        if self.instances is None:
            raise PlanError("POSG: the number of instances is not given; POSG(instances=...)")
        return self.instances

    @property
    def sync_interval(self) -> int:
        """Tuples between two synchronisations while no matrices come: `resync`, or N k."""
        return self.window * self.k if self.resync is None else self.resync

    def times(self) -> ExecutionTimes:
        """Empty matrices of this size and seed. Raises: PlanError."""
        return ExecutionTimes(self.epsilon, self.delta, seed=self.seed)

    def scheduler(self) -> PosgScheduler:
        """A scheduler in ROUND ROBIN, without matrices."""
        return PosgScheduler(self)

    def instance(self, index: int) -> PosgInstance:
        """Instance number `index`, in START."""
        return PosgInstance(self, index)


class PosgInstance:
    """An operator instance's side: measures execution times and says when they are worth sending (Listing
    III.1, Fig. 2).

    Two states. START: the first N tuples; then a snapshot W/F of every cell is taken. STABILIZING: after
    every further N tuples the matrices are compared with the snapshot; when the relative error eta is at
    most mu they are sent and reset (START), else the snapshot is renewed. One writer; cost O(r) per tuple.

    Parameters
    ----------
    parameters : POSG
    index : int
        0 to k - 1.

    Raises
    ------
    PlanError
        The index is out of range.
    """

    def __init__(self, parameters: POSG, index: int) -> None:
        if not is_whole(index) or not 0 <= index < parameters.k:
            raise PlanError(
                f"an instance of {parameters.k} has an index from 0 to {parameters.k - 1}, not {index!r:.80}"
            )
        self.parameters = parameters
        self.index = index
        self._learner = cost_learner.CostLearner(
            parameters.times().matrices, parameters.window, parameters.mu
        )
        self._executed = 0

    @property
    def learner(self) -> cost_learner.CostLearner:
        """The core's object, for the simulator."""
        return self._learner

    @property
    def state(self) -> str:
        """START or STABILIZING."""
        return "STABILIZING" if self._learner.stabilizing else "START"

    @property
    def executed(self) -> int:
        """Tuples, in all."""
        return self._executed

    @property
    def sent(self) -> int:
        """Pairs of matrices sent, in all."""
        return self._learner.sent

    @property
    def relative_error(self) -> float:
        """eta at the last comparison (equation 1); infinite before the first."""
        return self._learner.eta

    @property
    def times(self) -> ExecutionTimes:
        """A copy of the matrices as they are now, stable or not."""
        m = self._learner.matrices
        return _times(m.hashes, m.frequency, m.work, m.total_time)

    def execute(self, key: Key, time: float) -> Matrices | None:
        """A tuple was executed in `time` >= 0.

        Returns
        -------
        Matrices or None
            To be sent to the scheduler.

        Raises
        ------
        ValueError
            The time is negative or not finite.
        """
        sent = self._update(np.array([key_word(key)], dtype=np.uint64), np.array([time], dtype=np.float64))
        return sent[0] if sent else None

    def execute_many(self, keys: Any, times: npt.ArrayLike) -> list[Matrices]:
        """A column of tuples was executed, in order.

        Returns
        -------
        list of Matrices
            To be sent to the scheduler, in order.

        Raises
        ------
        ValueError
            A time is negative or not finite, or the lengths differ. Nothing is counted then.
        """
        return self._update(key_words(keys), np.ascontiguousarray(times, dtype=np.float64))

    def _update(self, words: npt.NDArray[np.uint64], times: npt.NDArray[np.float64]) -> list[Matrices]:
        version = self._learner.sent
        sent = self._learner.update_many(words, times)
        self._executed += len(words)
        return [
            Matrices(self.index, version + 1 + n, ExecutionTimes.of_matrices(m)) for n, m in enumerate(sent)
        ]

    def reply(self, request: SyncRequest, clock: float) -> SyncReply:
        """Answer a request when the tuple that carried it was executed.

        Parameters
        ----------
        request : SyncRequest
        clock : float
            Time since this instance began its first tuple, in the unit of the execution times. Time without
            work counts: with busy time only, an instance that idled would look ahead of the others and be
            sent more than its share.

        Raises
        ------
        ValueError
            The request is another instance's.
        """
        if request.instance != self.index:
            raise ValueError(f"instance {self.index} was given a request to instance {request.instance}")
        return SyncReply(self.index, request.epoch, clock - request.c_hat)


class PosgScheduler:
    """The scheduler's side: assigns tuples, in order, and keeps C^ per instance (Listing III.2, Fig. 3).

    ROUND ROBIN until every instance has sent matrices; SEND ALL: the next k tuples, tuple i to instance i,
    carry requests; WAIT ALL: greedy, until all replies of this epoch are there and correct C^; RUN: greedy.
    New matrices, and every `sync_interval` greedy tuples, lead back to SEND ALL with a new epoch. Replies of
    other epochs, second ones, and matrices older than those held change nothing. One caller at a time; cost
    O(k + r) per tuple.

    Parameters
    ----------
    parameters : POSG
    """

    splits_keys = True

    def __init__(self, parameters: POSG) -> None:
        self.parameters = parameters
        self._core = posg.Scheduler(parameters.times().hashes, parameters.k, parameters.sync_interval)
        self._left: list[SyncRequest] = []  # requests of `route` that a later `submit` found

    @property
    def core(self) -> posg.Scheduler:
        """The core's object, for the simulator."""
        return self._core

    @property
    def instances(self) -> int:
        """k."""
        return self.parameters.k

    @property
    def state(self) -> str:
        """ROUND ROBIN, SEND ALL, WAIT ALL or RUN."""
        return self._core.state

    @property
    def epoch(self) -> int:
        """Of the last synchronisation begun; 0: none yet."""
        return self._core.epoch

    @property
    def routed(self) -> int:
        """Tuples, in all."""
        return self._core.routed

    @property
    def synchronised(self) -> int:
        """How often C^ was corrected."""
        return self._core.synchronised

    @property
    def c_hat(self) -> npt.NDArray[np.float64]:
        """C^ per instance: a copy."""
        return self._core.c_hat.copy()

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple of a column, in order: int32 array. Requests made on the way:
        `take_requests`.
        """
        return self._core.route(key_words(keys))

    def submit(self, key: Key) -> tuple[int, SyncRequest | None]:
        """Instance of one tuple, and the request that it has to carry there. Requests of tuples that `route`
        took stay for `take_requests`.
        """
        instance = int(self._core.route(np.array([key_word(key)], dtype=np.uint64))[0])
        self._left = self.take_requests()
        if self._left and self._left[-1].position == self._core.routed - 1:
            return instance, self._left.pop()
        return instance, None

    def take_requests(self) -> list[SyncRequest]:
        """The requests made since this was last called, in order. Each is to travel with the tuple at
        its position.
        """
        taken, self._left = self._left, []
        return taken + [SyncRequest(*request) for request in self._core.take_requests()]

    def receive(self, message: Matrices | SyncReply) -> None:
        """A message of an instance has arrived.

        Raises
        ------
        ValueError
            There is no such instance, its matrices have another size or seed, or its delta is not finite.
        """
        if isinstance(message, Matrices):
            self._core.receive_matrices(message.instance, message.version, message.times.matrices)
        else:
            self._core.receive_reply(message.instance, message.epoch, message.delta)

    def deploy(self, models: Sequence[ExecutionTimes], c_hat: npt.ArrayLike | None = None) -> None:
        """Go to RUN at once with one pair of matrices per instance, from another run or a sample. They count
        as older than any that an instance sends (section III-B, Fig. 3.F).

        Parameters
        ----------
        models : sequence of ExecutionTimes
            k of them, each with at least one tuple.
        c_hat : float array (k), optional
            C^ to start from. Default 0.

        Raises
        ------
        PlanError
            They do not fit the scheduler.
        """
        _deploy(self._core, models, c_hat)

    def estimate_many(self, keys: Any, instance: int) -> npt.NDArray[np.float64]:
        """w^ for each key of a column on one instance (Listing III.2); 0.0 while that instance has sent
        no matrices.
        """
        return self._core.estimates(key_words(keys), instance)

    def freeze(self, seed: int = 0) -> FrozenPosg:
        """The model as it is now. In ROUND ROBIN it holds no matrices and is plain Round-Robin."""
        if self.state == "ROUND ROBIN":
            return FrozenPosg(self.instances, None, seed=seed)
        return FrozenPosg(self.instances, _models(self._core), self.c_hat, seed=seed)


class FrozenPosg:
    """POSG with a model that nothing changes: the same tuples in the same order always get the same
    instances.

    For a task that may be run again. No requests, no synchronisation; without matrices Round-Robin.

    Parameters
    ----------
    instances : int
        k.
    models : sequence of ExecutionTimes, one ExecutionTimes, or None
        One per instance, or one for all; each with at least one tuple.
    c_hat : float array (k), optional
        C^ before the first tuple. Default 0.
    seed : int
        The first of equal instances is number seed mod k: so that several sources do not all begin with the
        same one.

    Raises
    ------
    PlanError
        Models, c_hat and k do not fit each other.
    """

    splits_keys = True

    def __init__(
        self,
        instances: int,
        models: Sequence[ExecutionTimes] | ExecutionTimes | None,
        c_hat: npt.ArrayLike | None = None,
        *,
        seed: int = 0,
    ) -> None:
        if not 1 <= instances <= MOST_INSTANCES:
            raise PlanError(f"POSG needs 1 to 2^20 instances, not {instances}")
        if isinstance(models, ExecutionTimes):
            models = [models] * instances
        if models is None and c_hat is not None:
            raise PlanError("c_hat is of no use without models")
        self.instances = instances
        self.seed = seed
        hashes = models[0].hashes if models else hashing.TwoUniversal(1, 1)
        self._core = posg.Scheduler(hashes, instances, 0, seed % instances)
        self._trained = models is not None
        if models is not None:
            _deploy(self._core, models, c_hat)

    @property
    def models(self) -> list[ExecutionTimes] | None:
        """The matrices of each instance: copies; None: Round-Robin."""
        return _models(self._core) if self._trained else None

    @property
    def c_hat(self) -> npt.NDArray[np.float64]:
        """C^ before the first tuple: a copy."""
        return self._core.c_hat.copy()

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple of a column that starts with the first tuple: int32 array. A pure
        function.
        """
        return self._core.copy().route(key_words(keys))

    def router(self, seed: int | None = None) -> FrozenRouter:
        """A router from the first tuple on, for a column that comes in parts. `seed`: in place of the
        model's.
        """
        return FrozenRouter(
            self if seed is None else FrozenPosg(self.instances, self.models, self._start(), seed=seed)
        )

    def _start(self) -> npt.NDArray[np.float64] | None:
        return self.c_hat if self._trained else None

    def estimate_many(self, keys: Any, instance: int = 0) -> npt.NDArray[np.float64]:
        """w^ for each key of a column on one instance (Listing III.2); 0.0 without models."""
        return self._core.estimates(key_words(keys), instance)

    def to_bytes(self) -> bytes:
        """The model as bytes (`ordstream.balance.serial_form`)."""
        hashes = self._core.hashes
        values: dict[str, Any] = {"instances": self.instances, "seed": self.seed, "trained": self._trained}
        if not self._trained:
            return packed("FrozenPosg", values, {})
        values |= {"columns": hashes.columns, "hashes": hashes.coefficients}
        core = self._core
        arrays = {
            "c_hat": core.c_hat,
            "frequency": core.frequency,
            "work": core.work,
            "total_time": core.total_time,
        }
        return packed("FrozenPosg", values, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> FrozenPosg:
        """The model that `to_bytes` was called on.

        Raises
        ------
        SketchBytesError
            These are not the bytes of a FrozenPosg.
        """
        values, arrays = unpacked("FrozenPosg", data)
        try:
            if not values["trained"]:
                return cls(values["instances"], None, seed=values["seed"])
            hashes = hashing.TwoUniversal.from_coefficients(values["columns"], values["hashes"])
            parts = zip(arrays["frequency"], arrays["work"], arrays["total_time"].tolist(), strict=True)
            models = [_times(hashes, frequency, work, total) for frequency, work, total in parts]
            return cls(values["instances"], models, arrays["c_hat"], seed=values["seed"])
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise SketchBytesError(f"the bytes of this FrozenPosg cannot be read: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return (FrozenPosg.from_bytes, (self.to_bytes(),))


def _times(hashes: hashing.TwoUniversal, frequency: Any, work: Any, total_time: float) -> ExecutionTimes:
    return ExecutionTimes.of_matrices(count_min.TimeMatrices(hashes, frequency, work, total_time))


def _models(core: posg.Scheduler) -> list[ExecutionTimes]:
    """Copies of the matrices that a scheduler holds."""
    parts = zip(core.frequency, core.work, core.total_time.tolist(), strict=True)
    return [_times(core.hashes, frequency, work, total) for frequency, work, total in parts]


def _deploy(core: posg.Scheduler, models: Sequence[ExecutionTimes], c_hat: npt.ArrayLike | None) -> None:
    start = np.zeros(core.k) if c_hat is None else np.array(c_hat, dtype=np.float64)
    if start.shape != (core.k,) or not np.isfinite(start).all():
        raise PlanError(f"c_hat must hold {core.k} finite numbers, one per instance")
    for index, model in enumerate(models):
        if not model.tuples:
            raise PlanError(
                f"the matrices for instance {index} are empty: there is nothing to estimate from"
            )
    try:
        core.deploy([model.matrices for model in models], start)
    except ValueError as error:
        raise PlanError(str(error)) from None


class FrozenRouter:
    """Routes a column that comes in parts: the parts' instances, one after the other, are those of the whole
    column.

    Parameters
    ----------
    model : FrozenPosg
    """

    splits_keys = True

    def __init__(self, model: FrozenPosg) -> None:
        self.instances = model.instances
        self._core = model._core.copy()

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple of the next part: int32 array."""
        return self._core.route(key_words(keys))

    @property
    def c_hat(self) -> npt.NDArray[np.float64]:
        """C^ after the tuples routed so far: a copy."""
        return self._core.c_hat.copy()
