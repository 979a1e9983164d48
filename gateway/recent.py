"""Values that were asked for lately: a memory with a bound, which forgets what nobody asks for.

Rule: keeping, finding and forgetting cost the same however much is held. Two generations: what is found in the older is
moved to the younger, and when the younger is half of all, the older is forgotten as a whole. (A dict that is emptied
from its front walks over every place that it has emptied before.)
"""

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memory(Protocol):
    """What remembers something and says how much: `weight`, of at most `most`."""

    @property
    def most(self) -> int: ...
    @property
    def weight(self) -> int: ...


class Recent(Generic[K, V]):
    """Values by key, together never heavier than `most`; without `weigh` each weighs 1.

    Nothing that is within the last half of `most` is forgotten. A value heavier than that is not kept at all. Threads
    may share it.
    """

    __slots__ = ("_half", "_lock", "_old", "_old_weight", "_weigh", "_weight", "_young", "most")

    def __init__(self, most: int, weigh: Callable[[V], int] | None = None) -> None:
        self.most = most
        self._half = most // 2
        self._weigh = weigh
        self._lock = Lock()
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._weight = self._old_weight = 0

    def get(self, key: K) -> V | None:
        if (value := self._young.get(key)) is None and (value := self._old.get(key)) is not None:
            self.keep(key, value)
        return value

    def those(self, keys: Iterable[K]) -> dict[K, V]:
        """The values of all of these keys that are held."""
        young, old = self._young, self._old
        found = {key: young[key] for key in keys if key in young}
        for key in keys if old else ():
            if key not in found and (value := old.get(key)) is not None:
                found[key] = value
                self.keep(key, value)
        return found

    def keep(self, key: K, value: V) -> None:
        """Hold a value, or another in its place."""
        with self._lock:
            self._let_go(self._young, key)
            self._let_go(self._old, key)
            weight = self._weight_of(value)
            if weight > self._half:
                return
            if self._weight + weight > self._half:
                self._old, self._old_weight = self._young, self._weight
                self._young, self._weight = {}, 0
            self._young[key] = value
            self._weight += weight

    def forget(self, key: K) -> None:
        """Hold nothing under a key any more."""
        if key not in self._young and key not in self._old:
            return
        with self._lock:
            self._let_go(self._young, key)
            self._let_go(self._old, key)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def weight(self) -> int:
        """Of all that is held; never more than `most`."""
        return self._weight + self._old_weight

    def _let_go(self, generation: dict[K, V], key: K) -> None:
        if (value := generation.pop(key, None)) is None:
            return
        if generation is self._young:
            self._weight -= self._weight_of(value)
        else:
            self._old_weight -= self._weight_of(value)

    def _weight_of(self, value: V) -> int:
        return 1 if self._weigh is None else self._weigh(value)
