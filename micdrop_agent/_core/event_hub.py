"""Delivery of an agent's events, in the order of the changes they report.

    change ──▶ hub.emit ──▶ queue ──▶ listeners of the agent, in the order of ``on()``
                                 ├──▶ streams of ``agent.events()``
                                 └──▶ blinker signals, for observers of all agents

One queue per agent: an event emitted while another is being delivered waits for its turn, so
every observer sees the same order. A listener that raises is logged and harms nobody.
Pinned in tests/test_events.py and by invariant 13.
"""

from __future__ import annotations

import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from blinker import ANY, Signal

from micdrop_agent._core.guards import check_listener
from micdrop_agent.events import EVENT_TYPES, Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent._core.log import SafeLog

__all__ = ["EventHub", "Inbox", "signal_of"]

E = TypeVar("E", bound=Event)
F = TypeVar("F", bound="Callable[..., Any]")


CONNECTED: Final[list[Signal]] = []
"""The signals that ever had a receiver. To ask each signal would be 0.8 µs, three times in each ``cancel()``."""


class _Ordered(dict[Any, None]):
    """A set that keeps the order of insertion: blinker calls receivers in its order."""

    def add(self, item: Any) -> None:
        self[item] = None

    def discard(self, item: Any) -> None:
        self.pop(item, None)


class _OrderedSignal(Signal):
    # blinker's default set of ids is walked in no order (its documented hook, PR #116).
    set_class = _Ordered  # type: ignore[assignment]  # a set by duck typing, as blinker allows

    def connect(self, receiver: F, sender: Any = ANY, weak: bool = True) -> F:
        if self not in CONNECTED:
            CONNECTED.append(self)
        return super().connect(receiver, sender, weak)


_SIGNALS: Final[dict[type[Event], Signal]] = {
    kind: _OrderedSignal(f"{kind.__name__} of every agent: receiver(agent, event=event)") for kind in EVENT_TYPES
}


def signal_of(event_type: type[Event]) -> Signal:
    """The blinker signal that reports ``event_type`` for all agents of the process.

    Receivers are called as ``receiver(agent, event=event)``, after the agent's own listeners.
    ``signal_of(AnswerFailed).connect(receiver)`` holds the receiver weakly, as blinker does.

    Raises:
        TypeError: ``event_type`` is not an event class of this library.
    """
    return _SIGNALS[_checked(event_type)]


def _checked(event_type: type[E]) -> type[E]:
    if event_type not in EVENT_TYPES:
        names = ", ".join(kind.__name__ for kind in EVENT_TYPES)
        raise TypeError(f"not an event class: {event_type!r}; there are {names}")
    return event_type


class Inbox:
    """Events that wait for the reader of one stream.

    No memory object stream: a native asyncio cancellation loses the item that one has just handed
    over (anyio #536), and an observer that misses an event has a wrong conversation for good.
    """

    def __init__(self) -> None:
        self.waiting: deque[Event] = deque()
        self.ended = False
        """The agent was closed: nothing more comes."""
        self.dropped = False
        """Nobody reads any more."""
        self._wake: anyio.Event | None = None

    def put(self, event: Event) -> None:
        self.waiting.append(event)
        self.changed()

    def changed(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.set()

    async def wait(self) -> None:
        """Until something has changed."""
        if self._wake is None:
            self._wake = anyio.Event()
        await self._wake.wait()


class EventHub:
    """Delivers the events of one agent.

    Args:
        sender: The agent, as the signals' sender.
        log: Gets the errors of listeners.
    """

    def __init__(self, sender: object, log: SafeLog) -> None:
        self.sender = sender
        self.log = log
        self._listeners: dict[type[Any], dict[object, Callable[[Any], object]]] = {}
        self._inboxes: dict[Inbox, None] = {}
        # A list, read by position: an empty deque is 600 bytes, and there is one for every live call.
        self._queue: list[Event] = []
        self._delivering = False
        self._closed = False

    def on(self, event_type: type[E], listener: Callable[[E], object]) -> Callable[[], None]:
        """Call ``listener`` for each ``event_type`` from now on; returns what removes it."""
        _checked(event_type)
        check_listener(
            listener,
            "a listener is a function of one event",
            instead=", or read agent.events() in a task of your own",
        )
        key = object()
        self._listeners.setdefault(event_type, {})[key] = listener

        def remove() -> None:
            self._listeners.get(event_type, {}).pop(key, None)

        return remove

    def inbox(self) -> Inbox:
        """Where all events from now on are put, until it is dropped or the hub is closed."""
        inbox = Inbox()
        inbox.ended = self._closed
        if not self._closed:
            self._inboxes[inbox] = None
        return inbox

    @property
    def unheard(self) -> bool:
        """Whether nobody in the process would hear an event of this agent, so that it need not be made."""
        return not (self._listeners or self._inboxes or CONNECTED)

    def emit(self, *events: Event) -> None:
        """Deliver ``events`` in order, now, or right after the one being delivered."""
        if self._closed or self.unheard:
            return
        self._queue.extend(events)
        if self._delivering:
            return
        self._delivering = True
        position = 0
        try:
            while position < len(self._queue):
                position += 1
                self._deliver(self._queue[position - 1])
        finally:
            del self._queue[:position]
            self._delivering = False

    def _deliver(self, event: Event) -> None:
        kind = type(event)
        for listener in tuple(self._listeners.get(kind, {}).values()):
            self._call(event, listener, event)
        for inbox in tuple(self._inboxes):
            if inbox.dropped:
                del self._inboxes[inbox]
            else:
                inbox.put(event)
        signal = _SIGNALS[kind]
        if signal.receivers:
            for receiver in tuple(signal.receivers_for(self.sender)):
                self._call(event, receiver, self.sender, event=event)

    def _call(self, reported: Event, listener: Callable[..., object], /, *args: Any, **kw: Any) -> None:
        try:
            returned = listener(*args, **kw)
        except Exception:  # foreign code: one failing observer must not harm the answer
            self.log.exception("a listener of %s raised; it is ignored", type(reported).__name__)
            return
        if inspect.iscoroutine(returned):
            returned.close()
            self.log.error(
                "a listener of %s returned a coroutine, which nobody runs; use a plain function or agent.events()",
                type(reported).__name__,
            )

    def close(self) -> None:
        """Forget every listener and end every stream."""
        self._closed = True
        self._queue.clear()
        self._listeners.clear()
        for inbox in self._inboxes:
            inbox.ended = True
            inbox.changed()
        self._inboxes.clear()
