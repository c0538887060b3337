"""The response to one request: bytes from the transport, through reader and translation, to events.

    Response.receive() ──▶ SseReader ──▶ Translator ──▶ HttpStream.receive()
                     └─▶ one JSON value, from a server that ignored "stream" ─┘

Invariants, pinned in tests/test_provider_streams.py and tests/test_provider_agents.py:

1. What came before a failure, also in the same network read, is handed out before it is raised.
2. The end mark ends the response at once; the connection is drained when the stream is closed.
3. A body that is no event stream is one whole answer or a clear error, never silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from micdrop_agent.errors import ProviderError
from micdrop_agent.providers.failures import hide_secrets, page_title, without_secrets
from micdrop_agent.providers.responses.sse import MAX_EVENT_BYTES, SseReader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from micdrop_agent.model.protocol import ProviderEvent
    from micdrop_agent.providers.responses.sse import SseEvent
    from micdrop_agent.providers.responses.translator import Translator
    from micdrop_agent.transport import Response

__all__ = ["BodyReader", "HttpStream"]

_BOM: Final = b"\xef\xbb\xbf"


class BodyReader:
    """Feeds the bytes of a body to a translator, whatever the body turns out to be; no I/O.

    Args:
        translator: Of the provider's kind of stream.
        first_alone: Leave what stands behind the first text of its read to ``catch_up()``.
    """

    __slots__ = ("_begin", "_first_alone", "_later", "_reader", "_size", "_whole", "translator")

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
        """Events behind the first text of a read: that is handed out before they are looked at."""

    def catch_up(self) -> bool:
        """Take what was left of a read, if anything was."""
        later, self._later = self._later, []
        for event in later:
            self.translator.feed(event)
        return bool(later)

    def feed(self, data: bytes) -> None:
        """Take the bytes of one read. Never raises: a failure is the translator's."""
        if self._begin is not None:
            data = self._begin + data
            # Some gateways begin with blank lines while the model still waits in a queue.
            start = data.removeprefix(_BOM).lstrip()[:1]
            if (not start and len(data) < MAX_EVENT_BYTES) or _BOM.startswith(data):
                self._begin = data
                return
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
        self.catch_up()
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
        translator = self.translator
        try:
            events = self._reader.feed(data)
        except ProviderError as error:
            translator.failure = translator.failure or error
            return
        for number, event in enumerate(events):
            translator.feed(event)
            if self._first_alone and translator.said:
                # In a burst of 200 chunks the caller would wait for all of them to hear the first.
                self._first_alone = False
                self._later = events[number + 1 :]
                return

    def _gather(self, data: bytes) -> None:
        self._size += len(data)
        if self._whole is not None and self._size <= MAX_EVENT_BYTES:
            self._whole.append(data)
        elif self.translator.failure is None:
            self.translator.fail("protocol", f"answered with more than {MAX_EVENT_BYTES:,} bytes of JSON, not a stream")


class HttpStream:
    """A ``ProviderStream`` over the response of a transport.

    Args:
        response: Its head has come, with a good status.
        translator: Of the provider's kind of stream.
        provider: Name of the provider, for errors.
        secret: The key in use, kept out of errors.
    """

    __slots__ = ("_body", "_ended", "_provider", "_response", "_secret", "_translator")

    def __init__(self, response: Response, translator: Translator, provider: str, secret: str | None = None) -> None:
        self._response = response
        self._translator = translator
        self._body = BodyReader(translator, first_alone=True)
        self._provider = provider
        self._secret = secret
        self._ended = False

    async def receive(self) -> list[ProviderEvent] | None:
        """See ``ProviderStream.receive``."""
        if not (self._ended or self._body.catch_up()):
            try:
                data = await self._response.receive()
            except anyio.EndOfStream:
                self._body.end()
                self._ended = True
            except ProviderError as error:
                self._broken(error)
            else:
                self._body.feed(data)
        return self._hand_out()

    def _hand_out(self) -> list[ProviderEvent] | None:
        translator = self._translator
        if translator.done or translator.failure is not None:
            self._ended = True
        events = translator.events
        if events or not self._ended:
            translator.events = []
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

    def leave(self) -> Callable[[], Awaitable[None]] | None:
        """What may be done beside the answer in place of ``aclose()``, if the model has said everything."""
        if not self._complete:
            return None
        self._response.expect_end()
        return self.aclose

    async def aclose(self) -> None:
        """See ``ProviderStream.aclose``."""
        try:
            if self._complete:
                await self._response.drain()
        finally:
            await self._response.aclose()  # noqa: ASYNC102 - it shields and bounds itself
