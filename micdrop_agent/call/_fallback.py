"""What several speech services in a row have in common: when one fails, the next goes on in mid-sentence.

    FallbackSTT([a, b]) ── the turn's audio, again from where the text stops ──▶ b
    FallbackTTS([a, b]) ── the unsaid rest of the sentence ────────────────────▶ b

Both are supervisors on the same machinery as ``FallbackAgent`` (attempts, claim, clocks, hedge,
health) and report ``AgentSwitched``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from micdrop_agent._core.event_hub import EventHub
from micdrop_agent._core.log import SafeLog
from micdrop_agent._core.race import Race
from micdrop_agent.call._options import check_part
from micdrop_agent.call._rival import Rival
from micdrop_agent.events import AgentSwitched
from micdrop_agent.fallback.attempts import Attempts, Clocks
from micdrop_agent.fallback.health import HealthRegistry
from micdrop_agent.fallback.rotation import Rotation
from micdrop_agent.options import check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from micdrop_agent.fallback.attempts import Try

__all__ = ["Slot", "SpeechAttempts", "SpeechFallback"]

C = TypeVar("C")
X = TypeVar("X", bound=Rival)


class Slot(Generic[C]):
    """The place of one service."""

    def __init__(self, index: int, child: C, key: str) -> None:
        self.index = index
        self.child = child
        self.key = key


class SpeechFallback(Generic[C]):
    """What both have in common: the services, their health, and who learns of a switch."""

    keeps_time: ClassVar[bool] = True
    """A call leaves the clocks to it."""

    _method: ClassVar[str]

    def __init__(
        self,
        children: Sequence[C],
        *,
        give_up_after: float | None,
        hedge_after: float | Literal["p95"] | None,
        health: HealthRegistry | None,
        prefer: Literal["current", "first"],
        names: Sequence[str] | None,
    ) -> None:
        listed = list(children)
        if not listed:
            raise ValueError("a fallback needs at least one service")
        for index, child in enumerate(listed):
            check_part(f"number {index}", child, self._method)
        check_seconds("give_up_after", give_up_after, zero=False, none=True)
        if hedge_after != "p95":
            check_seconds("hedge_after", hedge_after, zero=False, none=True)
        if prefer not in {"current", "first"}:
            raise ValueError(f"prefer must be 'current' or 'first', not {prefer!r}")
        keys = _names(listed, names)
        self.slots = [Slot(index, child, key) for index, (child, key) in enumerate(zip(listed, keys, strict=True))]
        self.health: HealthRegistry = HealthRegistry() if health is None else health
        self.give_up_after = give_up_after
        self.hedge_after = hedge_after
        self.prefer = prefer
        self.active = 0
        """Index of the service that is asked first."""
        self.log = SafeLog(logging.getLogger("micdrop_agent.call"))
        self.hub = EventHub(self, self.log)

    @property
    def active_name(self) -> str:
        """Name of the service that is asked first."""
        return self.slots[self.active].key

    def on(self, event_type: type[AgentSwitched], listener: Callable[[AgentSwitched], object]) -> Callable[[], None]:
        """Call ``listener`` for each switch from one service to another; returns what removes it."""
        return self.hub.on(event_type, listener)

    def rotation(self) -> Rotation[Slot[C]]:
        """The services in the order in which this work asks them."""
        return Rotation(self.slots, self.health, 0 if self.prefer == "first" else self.active)


class SpeechAttempts(Attempts[Slot[C], X], Generic[C, X]):
    """One piece of work of a ``SpeechFallback``."""

    def __init__(self, fallback: SpeechFallback[C], outer: X, clocks: Clocks) -> None:
        super().__init__(fallback.rotation(), fallback.health, clocks, fallback.log)
        self.fallback = fallback
        self.outer = outer
        self.race: Race[X] = Race(self.won)
        self._face = fallback.active

    @property
    def fenced(self) -> bool:
        """Whether the call wants no more of it."""
        return self.outer.fenced

    def new_race(self) -> None:
        """A new race for those that come now."""
        self.race = Race(self.won)

    def build(self, slot: Slot[C]) -> Any:
        """The service itself."""
        return slot.child

    def at_work(self, slot: Slot[C]) -> None:
        """Tell of a switch."""
        before, self._face = self._face, slot.index
        self.fallback.active = slot.index
        if before != slot.index:
            old = self.fallback.slots[before].key
            reason = next((attempt.error for attempt in reversed(self.failed)), None)
            faster = TimeoutError(f"{slot.key} was faster, or is healthy again")
            self.fallback.hub.emit(AgentSwitched(old, slot.key, faster if reason is None else reason))

    def has_won(self, attempt: Try[Slot[C], X], *, hedged: bool) -> None:
        """The winner is the one that is asked first from now on."""
        del hedged
        self.at_work(attempt.slot)

    def may_hedge(self) -> bool:
        """Before anything was heard of the work."""
        return not self.outer.claimed


def _names(children: Sequence[object], names: Sequence[str] | None) -> list[str]:
    if names is not None:
        listed = list(names)
        if isinstance(names, str) or len(listed) != len(children) or len(set(listed)) != len(listed):
            raise ValueError(f"names must be {len(children)} different strings, one for each service, not {names!r}")
        return listed
    keys: list[str] = []
    for index, child in enumerate(children):
        key = type(child).__name__
        keys.append(key if key not in keys else f"{key} #{index + 1}")
    return keys
