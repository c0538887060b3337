"""The original browser client in headless Chromium, against a Python server.

The client comes from npm, or from ``MICDROP_CLIENT``: a folder with the built packages ``client`` and, from version
3 on, ``web``. Skipped where there is no Chromium, no npm, or no client; ``CHROMIUM`` may name the browser. The
microphone plays a file again and again: 0.8 s of sound, which is a turn of the caller, and 1.4 s of silence.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import wave
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from call_app import TONE
from call_server_support import COMMANDS, running

if TYPE_CHECKING:
    from collections.abc import Iterator

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
NPM = shutil.which("npm")
CLIENT = os.environ.get("MICDROP_CLIENT")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)
ENTRY = """
import { Micdrop } from '@micdrop/PACKAGE'
window.micdrop = Micdrop
window.begin = (path, params) => Micdrop.start({
  url: `ws://${location.host}${path}`, params, vad: 'volume', reconnect: { delayMs: 200 },
})
"""

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium, or set CHROMIUM"),
    pytest.mark.skipif(NPM is None, reason="no npm: apt-get install npm"),
]


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the client in it, bundled."""
    folder: Path = tmp_path_factory.mktemp("page")
    given = Path(CLIENT) if CLIENT else None
    packages = ["esbuild", "eventemitter3"] if given else ["esbuild", "@micdrop/client"]
    assert NPM is not None
    install = [NPM, "install", "--silent", "--no-audit", "--no-fund", *packages]
    if subprocess.run(install, cwd=folder, capture_output=True, timeout=300, check=False).returncode:
        pytest.skip("the client cannot be had from npm here; MICDROP_CLIENT may name a folder with it")
    has_web = given is not None and (given / "web").is_dir()
    (folder / "entry.js").write_text(ENTRY.replace("PACKAGE", "web" if has_web else "client"), encoding="utf-8")
    aliases = [f"--alias:@micdrop/{name}={given / name}" for name in ("client", "web")] if given else []
    bundle = [str(folder / "node_modules" / ".bin" / "esbuild"), "entry.js", "--bundle", "--outfile=public/client.js"]
    modules = {**os.environ, "NODE_PATH": str(folder / "node_modules")}
    subprocess.run([*bundle, *aliases], cwd=folder, env=modules, check=True, capture_output=True, timeout=120)
    page = '<!doctype html><title>call</title><body></body><script src="client.js"></script>'
    (folder / "public" / "index.html").write_text(page, encoding="utf-8")
    return folder / "public"


@pytest.fixture(scope="module", params=COMMANDS)
def server(
    request: pytest.FixtureRequest, page_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A running call server that also serves the page; its host and port."""
    log: Path = tmp_path_factory.mktemp("log") / "server.log"
    with running(request.param, log, CALL_PAGE=str(page_folder)) as host:
        yield host


@pytest.fixture(scope="module")
def microphone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the caller says."""
    path: Path = tmp_path_factory.mktemp("microphone") / "speech.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(8 * TONE + 14 * bytes(len(TONE)))
    return path


@pytest.fixture
def page(server: str, microphone: Path) -> Iterator[Any]:
    """The page in a browser of its own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS, f"--use-file-for-fake-audio-capture={microphone}"]
        )
        context = browser.new_context(permissions=["microphone"])
        found = context.new_page()
        found.goto(f"http://{server}/page/index.html")
        yield found
        browser.close()


def wait(page: Any, condition: str) -> None:
    page.wait_for_function(f"() => {{ const m = window.micdrop; return {condition} }}", timeout=20_000)


def test_it_starts_speaks_is_heard_and_interrupts(page: Any) -> None:
    page.evaluate("begin('/call')")
    wait(page, "m.conversation.some(item => item.role === 'assistant' && item.content === 'Hello!')")
    # A beep is heard and answered; the next one interrupts that answer.
    wait(page, "m.conversation.some(item => item.role === 'user' && item.content.endsWith(' bytes'))")
    wait(page, "m.conversation.filter(item => item.role === 'user').length >= 3")
    wait(page, "m.conversation.some(item => item.metadata && item.metadata.interrupted)")


def test_it_pauses_mutes_and_goes_on(page: Any) -> None:
    page.evaluate("begin('/call')")
    wait(page, "m.conversation.filter(item => item.role === 'user').length >= 1")
    page.evaluate("micdrop.pause()")
    wait(page, "m.isPaused && !m.isProcessing")
    before = page.evaluate("micdrop.conversation.length")
    page.wait_for_timeout(2500)
    assert page.evaluate("micdrop.conversation.length") <= before + 1  # a text that was on its way
    page.evaluate("micdrop.resume()")
    wait(page, f"m.conversation.length > {before + 1}")
    page.evaluate("micdrop.mute()")
    wait(page, "m.isMuted")


def test_it_comes_back_after_1001_with_its_conversation(page: Any) -> None:
    page.evaluate("begin('/restart')")
    wait(page, "m.conversation.some(item => item.content === 'Connection 1')")
    wait(page, "m.conversation.some(item => item.content === 'Connection 2')")
    assert page.evaluate("micdrop.conversation[0].content") == "Connection 1"


def test_params_that_are_refused_are_an_error_without_a_way_back(page: Any) -> None:
    page.evaluate("begin('/params', {other: 1}).catch(() => {})")
    wait(page, "m.error !== undefined && !m.isReconnecting && !m.isStarted")


def test_params_that_are_good_begin_the_call(page: Any) -> None:
    page.evaluate("begin('/params', {lang: 'fr'})")
    wait(page, "m.conversation.some(item => item.content === 'Hello in fr')")
