"""The response to one request: bytes from the transport, through reader and translation, to events.

    Response.receive() ──▶ SseReader ──▶ Translator ──▶ HttpStream.receive()
                     └─▶ one JSON value, from a server that ignored "stream" ─┘

Invariants, pinned in tests/test_provider_streams.py and tests/test_provider_agents.py:

1. What came before a failure, also in the same network read, is handed out before it is raised.
2. The end mark ends the response at once; the connection is drained when the stream is closed.
3. A body that is not an event stream is one whole answer or a clear error, never silence.
4. One ``receive()`` handles a slice of what came: ``SLICE_BYTES`` and ``SLICE_EVENTS`` at most, and the event
   loop has its turn before the next one (tests/test_transport_slices.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel

from micdrop_agent.errors import ProviderError
from micdrop_agent.providers.failures import hide_secrets, page_title, without_secrets
from micdrop_agent.providers.responses.sse import MAX_EVENT_BYTES, SseReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent.model.protocol import ProviderEvent
    from micdrop_agent.providers.responses.sse import SseEvent
    from micdrop_agent.providers.responses.translator import Translator
    from micdrop_agent.transport.base import Response

__all__ = ["BodyReader", "HttpStream"]

_BOM: Final = b"\xef\xbb\xbf"

SLICE_BYTES: Final = 16 * 1024
"""Most bytes that are handled before the event loop has its turn: a burst of 50 chunks, or 4 ms of odd lines."""

SLICE_LINES: Final = 1024
"""Most line ends in a slice; where there are more, it has ``DENSE_BYTES``: a short odd line costs up to 7 µs."""

DENSE_BYTES: Final = 4096

SLICE_EVENTS: Final = 256
"""Most events that are handled before that: the shortest have 9 bytes, and each costs 5 to 15 µs."""

MAX_EVENTS: Final = 250_000
"""Most events of one response: more than the tokens of any model's longest."""

MAX_TEXT_CHARS: Final = 2 * 1024 * 1024
"""Longest text of one response: forty hours of speech."""

_QUIET_READS: Final = 16
"""Reads without an event after which the loop is given a turn, whether or not it had one: cancellation is
delivered then, also while bytes flood."""


class BodyReader:
    """Feeds the bytes of a body to a translator, whatever the body turns out to be; no I/O.

    Args:
        translator: Of the provider's kind of stream.
        first_alone: Leave what stands after the first text of its read to ``catch_up()``.
    """

    __slots__ = (
        "_begin",
        "_events_left",
        "_first_alone",
        "_later",
        "_reader",
        "_rest",
        "_size",
        "_whole",
        "sliced",
        "translator",
    )

    def __init__(self, translator: Translator, *, first_alone: bool = False) -> None:
        self.translator = translator
        self._reader = SseReader()
        self._begin: bytes | None = b""
        """Bytes that are blank so far; None once the kind of body is known."""
        self._whole: list[bytes] | None = None
        """The pieces of a body that is one JSON value."""
        self._size = 0
        self._first_alone = first_alone
        self._later: list[SseEvent] = []
        """Events that were not looked at yet: those after the first text, or after a slice."""
        self._rest = b""
        """Bytes after a slice."""
        self.sliced = False
        """Whether the last read was too large to be handled at once."""
        self._events_left = MAX_EVENTS

    @property
    def behind(self) -> bool:
        """Whether something of the last read was not looked at yet."""
        return bool(self._later or self._rest)

    def catch_up(self) -> None:
        """Take the next slice of what was left of a read."""
        if self._later:
            later, self._later = self._later, []
            self._take(later)
        else:
            rest, self._rest = self._rest, b""
            self.feed(rest)

    def feed(self, data: bytes) -> None:
        """Take the bytes of one read, or the first slice of them. Never raises: a failure is the translator's."""
        size = SLICE_BYTES if len(data) <= DENSE_BYTES else _slice_of(data)
        self.sliced = len(data) > size
        if self.sliced:
            data, self._rest = data[:size], data[size:]
        if self._begin is not None:
            # Some gateways begin with blank lines while the model still waits in a queue. They mean nothing, and are
            # not kept: only what may become a byte order mark is.
            came = len(data)
            data = (self._begin + data).removeprefix(_BOM).lstrip()
            start = data[:1]
            if not start or _BOM.startswith(data):
                self._begin = data
                self._size += came
                if self._size > MAX_EVENT_BYTES:
                    self.translator.fail("protocol", f"sent more than {MAX_EVENT_BYTES:,} bytes of blank lines")
                return
            self._size = 0
            self._begin = None
            if start in {b"{", b"["}:
                self._whole = []
            elif start == b"<":
                title = hide_secrets(page_title(data))
                self.translator.fail("protocol", f"answered with {title} in place of a model response; see base_url")
        if self._whole is not None:
            self._gather(data)
        else:
            self._events(data)

    def end(self) -> None:
        """The body is at its end."""
        translator = self.translator
        if self._whole is not None:
            translator.whole(b"".join(self._whole).removeprefix(_BOM))
            return
        try:
            events = self._reader.feed(self._begin) if self._begin else []
            events += self._reader.finish()
        except ProviderError as error:
            translator.failure = translator.failure or error
        else:
            unharmed = translator.failure is None
            for event in events:
                translator.feed(event)
            if unharmed and translator.failure is not None and translator.failure.kind == "protocol":
                # The last event has no end, and cannot be read: the cut is what went wrong.
                translator.failure = None
        translator.end()

    def _events(self, data: bytes) -> None:
        try:
            events = self._reader.feed(data)
        except ProviderError as error:
            self.translator.failure = self.translator.failure or error
            return
        self._take(events)

    def _take(self, events: list[SseEvent]) -> None:
        translator = self.translator
        if len(events) > SLICE_EVENTS:
            self.sliced = True
            events, self._later = events[:SLICE_EVENTS], events[SLICE_EVENTS:]
        self._events_left -= len(events)
        if self._events_left < 0 and translator.failure is None:
            translator.fail("protocol", f"sent more than {MAX_EVENTS:,} events as one response")
        for number, event in enumerate(events):
            translator.feed(event)
            if self._first_alone and translator.said:
                # In a burst of 200 chunks the caller would wait for all of them to hear the first.
                self._first_alone = False
                self._later = events[number + 1 :] + self._later
                return

    def _gather(self, data: bytes) -> None:
        self._size += len(data)
        if self._whole is not None and self._size <= MAX_EVENT_BYTES:
            self._whole.append(data)
        elif self.translator.failure is None:
            self.translator.fail("protocol", f"answered with more than {MAX_EVENT_BYTES:,} bytes of JSON, not a stream")


def _slice_of(data: bytes) -> int:
    """How many of these bytes are handled in one turn of the event loop."""
    return DENSE_BYTES if data.count(b"\n", 0, SLICE_BYTES) > SLICE_LINES else SLICE_BYTES


class HttpStream:
    """A ``ProviderStream`` over the response of a transport.

    Args:
        response: Its head has come, with a good status.
        translator: Of the provider's kind of stream.
        provider: Name of the provider, for errors.
        secret: The key in use, kept out of errors.
    """

    __slots__ = (
        "_body",
        "_chars_left",
        "_drains",
        "_ended",
        "_provider",
        "_quiet",
        "_response",
        "_secret",
        "_translator",
    )

    def __init__(self, response: Response, translator: Translator, provider: str, secret: str | None = None) -> None:
        self._response = response
        self._translator = translator
        self._body = BodyReader(translator, first_alone=True)
        self._provider = provider
        self._secret = secret
        self._ended = False
        self._drains = True
        self._quiet = 0
        """Slices since the last one that brought something."""
        self._chars_left = MAX_TEXT_CHARS

    async def receive(self) -> list[ProviderEvent] | None:
        """See ``ProviderStream.receive``."""
        body = self._body
        if not self._ended:
            if body.behind:
                if self._quiet or body.sliced:
                    await anyio.lowlevel.checkpoint()
                body.catch_up()
            else:
                if self._quiet > _QUIET_READS:
                    self._quiet = 1
                    await anyio.lowlevel.checkpoint()
                # In this frame and not in one of its own: a live answer always waits here.
                try:
                    data = await self._response.receive()
                except anyio.EndOfStream:
                    body.end()
                    self._ended = True
                except ProviderError as error:
                    self._broken(error)
                else:
                    body.feed(data)
        return self._hand_out()

    def _hand_out(self) -> list[ProviderEvent] | None:
        translator = self._translator
        if translator.done or translator.failure is not None:
            self._ended = True
        events = translator.events
        if events:
            translator.events = []
            self._quiet = 0
            self._chars_left -= sum(len(event) for event in events if type(event) is str)
            if self._chars_left < 0 and translator.failure is None:
                translator.fail("protocol", f"sent more than {MAX_TEXT_CHARS:,} characters as one response")
            return events
        if not self._ended:
            self._quiet += 1
            return events
        if translator.failure is None:
            return None
        if translator.said:
            # Whatever failed, the words are out: asking again would say them twice.
            translator.failure.retryable = False
        raise translator.failure

    def _broken(self, error: ProviderError) -> None:
        """The connection failed within the body."""
        self._ended = True
        if self._translator.finishing:
            # The model has said all: a cut behind it costs the connection, not the answer.
            self._body.end()
            return
        error.provider = error.provider or self._provider
        # Cut before a word was heard: as good as a connection that never stood.
        error.retryable = error.retryable or error.kind == "truncated"
        self._translator.failure = without_secrets(error, self._secret)

    @property
    def released(self) -> bool:
        """Whether the connection has been given back, so that ``aclose()`` has nothing to do."""
        return self._response.released

    def abort(self) -> None:
        """Tell the server at once that nobody listens any more; ``aclose()`` is still needed."""
        if not self._translator.done:
            self._response.abort()

    @property
    def _complete(self) -> bool:
        """Whether the model has said everything: what may follow is for the connection's sake only."""
        translator = self._translator
        return (translator.done or translator.finishing) and translator.failure is None

    def hang_up(self) -> None:
        """The body stayed open although the model has said everything: its connection is not waited for."""
        self._drains = False

    def leave(self) -> Callable[[], Awaitable[None]] | None:
        """What may be done beside the answer in place of ``aclose()``, if the model has said everything."""
        if not (self._complete and self._drains):
            return None
        self._response.expect_end()
        return self.aclose

    async def aclose(self) -> None:
        """See ``ProviderStream.aclose``."""
        try:
            if self._complete and self._drains:
                await self._response.drain()
        finally:
            await self._response.aclose()  # noqa: ASYNC102 - it shields and bounds itself
