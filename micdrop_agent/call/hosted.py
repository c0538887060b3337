"""Speech over HTTP, for ``Call``: every server with OpenAI's ``/audio/transcriptions`` and ``/audio/speech``.

OpenAI itself, and what serves the same two paths: Groq, Speaches, Kokoro-FastAPI, LocalAI, vLLM. Over the same
HTTP/1.1 client as the models, so a barge-in closes the connection and nothing new is installed.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from micdrop_agent.call._pcm import PcmConverter, wav
from micdrop_agent.errors import ProviderError
from micdrop_agent.providers.failures import status_error
from micdrop_agent.transport.choose import open_transport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyio.abc import ObjectReceiveStream

    from micdrop_agent.call import Hearing, Voice
    from micdrop_agent.transport.base import ConnectFn, Response, Transport

__all__ = ["OpenaiSTT", "OpenaiTTS"]

_BASE_URL: Final = "https://api.openai.com/v1"
_KEY_VARIABLE: Final = "OPENAI_API_KEY"
_OK: Final = 200
_ERROR_BODY_S: Final = 1.0
_LONGEST_ANSWER: Final = 4 << 20


class _Server:
    """One server: its key, and connections that open when they are first used."""

    def __init__(
        self, base_url: str, api_key: str | None, settings: Mapping[str, Any] | None, connect: ConnectFn | None
    ) -> None:
        # The key of the environment is OpenAI's, and goes nowhere else.
        self._key = api_key or (os.environ.get(_KEY_VARIABLE) if base_url == _BASE_URL else None)
        self._base_url = base_url
        self._settings = dict(settings or {})
        self._transport: Transport = open_transport(base_url, connect=connect)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; a use after that is an error."""
        await self._transport.aclose()

    async def _post(self, path: str, body: bytes, content_type: str) -> Response:
        headers = {"content-type": content_type, "accept": "*/*"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        response = await self._transport.post(path, headers, body)
        if response.status == _OK:
            return response
        async with response:
            told = await response.read(within=_ERROR_BODY_S)
        raise status_error(response.status, response.headers, told, provider=type(self).__name__, secret=self._key)


class OpenaiSTT(_Server):
    """Speech to text by a server with ``/audio/transcriptions``.

    The audio of a stretch of speech is sent when it has ended. ``async with`` or ``aclose()`` closes its connections;
    one object may serve many calls of one event loop.

    Args:
        model: The model's name at that server.
        base_url: Where the server is.
        api_key: Its key; OpenAI's own is taken from ``OPENAI_API_KEY``.
        language: The language of the callers, such as ``"en"``; None lets the model find out.
        settings: Further fields of the request, such as ``{"prompt": "Names: Okonkwo"}``.
        connect: Opens connections in place of TCP; for tests, such as that of a ``testing.Cassette``.
    """

    def __init__(
        self,
        model: str = "gpt-4o-mini-transcribe",
        *,
        base_url: str = _BASE_URL,
        api_key: str | None = None,
        language: str | None = None,
        settings: Mapping[str, Any] | None = None,
        connect: ConnectFn | None = None,
    ) -> None:
        super().__init__(base_url, api_key, settings, connect)
        self._fields = {"model": model, "response_format": "json", "language": language, **self._settings}

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        """Report what is said in ``audio`` to ``hearing``, once the audio has ended.

        Raises:
            ProviderError: The server cannot be reached, refuses, or answers something else.
        """
        pcm = b"".join([chunk async for chunk in audio])
        hearing.final(await self._text_of(pcm) if pcm else "")

    async def _text_of(self, pcm: bytes) -> str:
        boundary = f"micdrop-{secrets.token_hex(12)}"
        body = _multipart(self._fields, wav(pcm), boundary)
        async with await self._post(
            "/audio/transcriptions", body, f"multipart/form-data; boundary={boundary}"
        ) as response:
            parts: list[bytes] = []
            size = 0
            try:
                while size <= _LONGEST_ANSWER:
                    parts.append(await response.receive())
                    size += len(parts[-1])
            except anyio.EndOfStream:
                pass
        return _transcript(b"".join(parts))


class OpenaiTTS(_Server):
    """Text to speech by a server with ``/audio/speech``, played while it comes.

    One request for each piece of text. ``async with`` or ``aclose()`` closes its connections; one object may serve
    many calls of one event loop.

    Args:
        model: The model's name at that server.
        voice: One of its voices.
        base_url: Where the server is.
        api_key: Its key; OpenAI's own is taken from ``OPENAI_API_KEY``.
        sample_rate: Samples a second of its ``pcm`` format. A WAV header in the answer goes before it.
        settings: Further fields of the request, such as ``{"instructions": "Speak calmly.", "speed": 1.1}``.
        connect: Opens connections in place of TCP; for tests, such as that of a ``testing.Cassette``.
    """

    def __init__(
        self,
        model: str = "gpt-4o-mini-tts",
        voice: str = "alloy",
        *,
        base_url: str = _BASE_URL,
        api_key: str | None = None,
        sample_rate: int = 24_000,
        settings: Mapping[str, Any] | None = None,
        connect: ConnectFn | None = None,
    ) -> None:
        super().__init__(base_url, api_key, settings, connect)
        PcmConverter(sample_rate)  # refuses a rate that cannot be
        self._sample_rate = sample_rate
        self._fields = {"model": model, "voice": voice, "response_format": "pcm", **self._settings}

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say all of ``text`` through ``voice``, until the text ends.

        Raises:
            ProviderError: The server cannot be reached, refuses, or breaks off.
        """
        async for piece in text:
            if piece.strip():
                await self._say(piece, voice)

    async def _say(self, piece: str, voice: Voice) -> None:
        body = json.dumps({**self._fields, "input": piece}).encode()
        audio = PcmConverter(self._sample_rate)
        said = False
        async with await self._post("/audio/speech", body, "application/json") as response:
            if "json" in response.headers.get("content-type", ""):
                raise ProviderError("the server answered JSON in place of audio", kind="protocol")
            try:
                while True:
                    chunk = audio.feed(await response.receive())
                    said = said or bool(chunk)
                    await voice.write(chunk)
            except anyio.EndOfStream:
                await voice.write(audio.finish())
            except ValueError as error:
                raise ProviderError(f"the server's audio cannot be played: {error}", kind="protocol") from error
        if not said:
            raise ProviderError("the server sent no audio", kind="empty")


def _multipart(fields: Mapping[str, Any], file: bytes, boundary: str) -> bytes:
    parts: list[bytes] = []
    for name, value in fields.items():
        if value is not None:
            said = value if isinstance(value, str) else json.dumps(value)
            parts.append(f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{said}\r\n'.encode())
    head = f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="speech.wav"\r\n'
    parts.append(f"{head}content-type: audio/wav\r\n\r\n".encode() + file + f"\r\n--{boundary}--\r\n".encode())
    return b"".join(parts)


def _transcript(body: bytes) -> str:
    try:
        text = json.loads(body).get("text")
    except (ValueError, AttributeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise ProviderError("the server answered something that is not a transcript", kind="protocol")
    return text.strip()
