"""The one interface of all groupings: keys in, instances out; and the static kind, a deployed map.

A grouping decides which of k instances of an operator (which node) gets a tuple. `route(keys)` takes a
column of keys and gives an int32 array of instances. Static groupings (`KeyMap`) are pure functions of the
key: a task that is run again decides the same. Those that split a key over instances (`splits_keys`) count
what they sent, and fit only operators whose partial results can be merged.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ordstream._core.balance import hashing, key_route
from ordstream.balance.keys import Key, key_word, key_words
from ordstream.balance.serial_form import SketchBytesError, key_from_json, key_to_json, packed, unpacked
from ordstream.errors import PlanError

Instances = npt.NDArray[np.int32]


@runtime_checkable
class Grouping(Protocol):
    """What every grouping has."""

    @property
    def instances(self) -> int:
        """k, how many instances there are."""
        ...

    @property
    def splits_keys(self) -> bool:
        """True: tuples with one key may go to different instances."""
        ...

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple, in [0, k).

        Parameters
        ----------
        keys : column of keys
            What `ordstream.balance.keys.key_words` accepts.

        Returns
        -------
        int32 array
        """
        ...


class KeyMap:
    """A deployed map: heavy hitters by name, all other keys by the bucket that a hash function gives (DKG,
    Listing 3.2).

    Total, deterministic, the same in every process and after serialisation. Memory: O(buckets + heavy
    hitters).

    Parameters
    ----------
    instances : int
        k.
    hashes : TwoUniversal
        Key words to buckets.
    buckets : int array
        Instance of each bucket.
    heavy : list of (key, instance)
        Keys with an instance of their own choice.
    """

    splits_keys = False

    def __init__(
        self,
        instances: int,
        hashes: hashing.TwoUniversal,
        buckets: npt.ArrayLike,
        heavy: list[tuple[Key, int]] | None = None,
    ) -> None:
        heavy = heavy or []
        self._heavy = heavy
        self._buckets = np.array(buckets, dtype=np.int32)
        words = np.array([key_word(key) for key, _ in heavy], dtype=np.uint64)
        chosen = np.array([instance for _, instance in heavy], dtype=np.int32)
        self._map = key_route.DeployedMap(instances, hashes, self._buckets, words, chosen, chosen)

    @classmethod
    def of_words(
        cls,
        instances: int,
        hashes: hashing.TwoUniversal,
        buckets: npt.ArrayLike,
        words: npt.NDArray[np.uint64],
        chosen: Instances,
    ) -> KeyMap:
        """A map whose heavy hitters are given as words; it shows no keys and has no bytes (maps of a
        whole key set).
        """
        made = cls.__new__(cls)
        made._heavy = []
        made._buckets = np.array(buckets, dtype=np.int32)
        made._map = key_route.DeployedMap(instances, hashes, made._buckets, words, chosen, chosen)
        return made

    @property
    def instances(self) -> int:
        """k."""
        return self._map.instances

    @property
    def heavy(self) -> list[tuple[Key, int]]:
        """(key, instance) of every heavy hitter, as given."""
        return list(self._heavy)

    @property
    def buckets(self) -> Instances:
        """Instance of each bucket."""
        return self._buckets.copy()

    @property
    def hashes(self) -> hashing.TwoUniversal:
        """Key words to buckets."""
        return self._map.hashes

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple: GETINSTANCE of Listing 3.2. Cost: some ns per integer key."""
        return self._map.route(key_words(keys))

    def instance_of(self, key: Key) -> int:
        """Instance of one key."""
        return int(self._map.route(np.array([key_word(key)], dtype=np.uint64))[0])

    @property
    def has_bytes(self) -> bool:
        """It can be written down, and so sent to another process: it was not made `of_words`."""
        return self._map.heavy_words == len(self._heavy)

    def to_bytes(self) -> bytes:
        """The map as bytes (`ordstream.balance.serial_form`).

        Raises
        ------
        ValueError
            The map was made `of_words`.
        """
        if not self.has_bytes:
            raise ValueError("a map made of words has no keys to write down")
        values = {
            "instances": self.instances,
            "columns": self.hashes.columns,
            "hashes": self.hashes.coefficients,
            "keys": [key_to_json(key) for key, _ in self._heavy],
        }
        chosen = np.array([instance for _, instance in self._heavy], dtype=np.int32)
        return packed("KeyMap", values, {"buckets": self._buckets, "chosen": chosen})

    @classmethod
    def from_bytes(cls, data: bytes) -> KeyMap:
        """The map that `to_bytes` was called on.

        Raises
        ------
        SketchBytesError
            These are not the bytes of a KeyMap.
        """
        values, arrays = unpacked("KeyMap", data)
        try:
            hashes = hashing.TwoUniversal.from_coefficients(values["columns"], values["hashes"])
            heavy = [
                (key_from_json(key), one)
                for key, one in zip(values["keys"], arrays["chosen"].tolist(), strict=True)
            ]
            return cls(values["instances"], hashes, arrays["buckets"], heavy)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise SketchBytesError(f"the bytes of this KeyMap cannot be read: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return (KeyMap.from_bytes, (self.to_bytes(),))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(instances={self.instances}, buckets={len(self._buckets)}, "
            f"heavy={self._map.heavy_words})"
        )


def check_sent(grouping: Any) -> None:
    """Whether a grouping can be sent to other processes, as far as it is known here.

    Parameters
    ----------
    grouping : object

    Raises
    ------
    PlanError
        It is a map without bytes (`KeyMap.has_bytes`).
    """
    if isinstance(grouping, KeyMap) and not grouping.has_bytes:
        raise PlanError(
            f"grouping: {grouping!r} knows its keys by their words only, as the maps of "
            "optimal_approximation do: it has no bytes, and can't be sent to other processes. Use "
            "od.DKG(theta=...).fit(keys, nodes)"
        )


class SplitKeyMap(KeyMap):
    """A deployed map in which each heavy hitter has two instances; a tuple goes to the one that received
    fewer tuples so far.

    DKG with PKG's idea (DKG, section 6): the sparse keys stay whole. One object per source: it counts what
    it sent.

    Parameters
    ----------
    heavy : list of (key, first instance, second instance)
        The two may be the same.
    """

    splits_keys = True

    def __init__(
        self,
        instances: int,
        hashes: hashing.TwoUniversal,
        buckets: npt.ArrayLike,
        heavy: list[tuple[Key, int, int]],
    ) -> None:
        self._pairs = heavy
        self._heavy = [(key, first) for key, first, _ in heavy]
        self._buckets = np.array(buckets, dtype=np.int32)
        words = np.array([key_word(key) for key, _, _ in heavy], dtype=np.uint64)
        first = np.array([one for _, one, _ in heavy], dtype=np.int32)
        second = np.array([one for _, _, one in heavy], dtype=np.int32)
        self._map = key_route.DeployedMap(instances, hashes, self._buckets, words, first, second)
        self._received = np.zeros(instances, dtype=np.int64)

    @property
    def pairs(self) -> list[tuple[Key, int, int]]:
        """(key, first instance, second instance) of every heavy hitter."""
        return list(self._pairs)

    @property
    def received(self) -> npt.NDArray[np.int64]:
        """Tuples sent to each instance so far."""
        return self._received.copy()

    def fresh(self) -> SplitKeyMap:
        """The same map for another source: nothing sent yet."""
        return SplitKeyMap(self.instances, self.hashes, self._buckets, self._pairs)

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple, in order; counts them."""
        return self._map.route_loaded(key_words(keys), self._received)

    def instance_of(self, key: Key) -> int:
        """A split key has no single instance: TypeError."""
        raise TypeError("a split key map has no single instance per key; use route")

    def to_bytes(self) -> bytes:
        """The map and its counts as bytes."""
        values = {
            "instances": self.instances,
            "columns": self.hashes.columns,
            "hashes": self.hashes.coefficients,
            "keys": [key_to_json(key) for key, _, _ in self._pairs],
        }
        chosen = np.array([pair[1:] for pair in self._pairs], dtype=np.int32).reshape(-1, 2)
        return packed(
            "SplitKeyMap", values, {"buckets": self._buckets, "chosen": chosen, "received": self._received}
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> SplitKeyMap:
        """The map that `to_bytes` was called on, with its counts. SketchBytesError for other bytes."""
        values, arrays = unpacked("SplitKeyMap", data)
        try:
            hashes = hashing.TwoUniversal.from_coefficients(values["columns"], values["hashes"])
            heavy = [
                (key_from_json(key), first, second)
                for key, (first, second) in zip(values["keys"], arrays["chosen"].tolist(), strict=True)
            ]
            made = cls(values["instances"], hashes, arrays["buckets"], heavy)
            if arrays["received"].shape != made._received.shape or arrays["received"].min() < 0:
                raise ValueError("counts do not fit the instances")
            made._received[:] = arrays["received"]
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise SketchBytesError(f"the bytes of this SplitKeyMap cannot be read: {error}") from error
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (SplitKeyMap.from_bytes, (self.to_bytes(),))
