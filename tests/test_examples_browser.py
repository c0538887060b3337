"""The call server in a real browser (headless Chromium), under uvicorn on asyncio and under hypercorn on Trio.

Skipped where there is no Chromium; ``CHROMIUM`` may name it. Nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = Path(__file__).parents[1] / "examples" / "call_server"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
COMMANDS = {
    "uvicorn on asyncio": ["uvicorn", "app:app", "--log-level", "warning", "--port"],
    "hypercorn on trio": ["hypercorn", "app:app", "-k", "trio", "-b"],
}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium, or set CHROMIUM")


@pytest.fixture(scope="module", params=COMMANDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running call server; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bind = str(port) if "uvicorn" in request.param else f"127.0.0.1:{port}"
    keys = {"OPENAI_API_KEY": "", "MISTRAL_API_KEY": "", "CALL_MODELS": "scripted", "CALL_VOICE": "off"}
    environment = {**os.environ, **keys, "CALLS_DB": str(tmp_path_factory.mktemp("calls") / "calls.db")}
    log = tmp_path_factory.mktemp("log") / "server.log"
    with log.open("w") as output:
        command = [sys.executable, "-m", *COMMANDS[request.param], bind]
        process = subprocess.Popen(command, cwd=SERVER, env=environment, stdout=output, stderr=output)
        try:
            _wait_for(f"http://127.0.0.1:{port}/", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)
    assert "Traceback" not in log.read_text(), log.read_text()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(100):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            assert process.poll() is None, "the server has ended"
            time.sleep(0.1)
    raise AssertionError("the server does not answer")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A running browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any, server: str) -> Iterator[Any]:
    """The page of a new call, connected; no error may show in its console."""
    errors: list[str] = []
    context = chromium.new_context()
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{server}/")
    page.wait_for_selector("#state.open")
    yield page
    context.close()
    assert errors == []


def _say(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


def _last_answer(page: Any) -> str:
    return str(page.locator(".assistant").last.text_content())


def _stored(page: Any) -> list[dict[str, Any]]:
    url = page.evaluate("`${location.origin}/calls/${location.hash.slice(1)}`")
    with urllib.request.urlopen(url, timeout=10) as response:
        items: list[dict[str, Any]] = json.load(response)
    return items


def test_an_answer_is_shown_word_by_word_while_it_comes(page: Any) -> None:
    _say(page, "Tell me a story")
    page.wait_for_selector(".assistant.live")
    first = _last_answer(page)
    page.wait_for_function(
        "length => document.querySelector('.assistant.live').textContent.length > length", arg=len(first)
    )

    assert _last_answer(page).startswith(first)
    assert page.is_enabled("#stop")


def test_stop_in_mid_sentence_stores_what_was_shown_and_no_more(page: Any) -> None:
    _say(page, "Tell me a story")
    page.wait_for_function("document.querySelector('.assistant.live')?.textContent.length > 40")
    page.click("#stop")
    shown = _last_answer(page)
    page.wait_for_timeout(400)

    assert _last_answer(page) == shown
    assert not shown.rstrip().endswith(".")
    last = _stored(page)[-1]
    assert (last["role"], last["content"], last["metadata"]) == ("assistant", shown, {"interrupted": True})


def test_saying_something_while_it_answers_interrupts_it(page: Any) -> None:
    _say(page, "Tell me a story")
    page.wait_for_function("document.querySelector('.assistant.live')?.textContent.length > 40")
    _say(page, "Are you open on Sunday?")
    page.wait_for_selector(".figures")

    roles = [item["role"] for item in _stored(page)]
    assert roles[1:4] == ["user", "assistant", "user"]
    assert "closed" in _last_answer(page)
    assert page.locator(".assistant.interrupted").count() == 1


def test_a_tool_call_is_shown_while_it_runs_and_with_its_result(page: Any) -> None:
    _say(page, "Book a table for two")
    page.wait_for_selector(".tool .out:empty", state="attached")
    page.wait_for_selector(".figures")

    assert page.locator(".tool").text_content() == (
        'book_table {"day": "Friday", "people": 2} {"booked":true,"day":"Friday","people":2}'
    )


def test_a_model_that_breaks_off_is_followed_by_the_next_one_with_no_word_twice(page: Any) -> None:
    _say(page, "Break off, please")
    page.wait_for_selector(".switch")
    page.wait_for_selector(".figures")

    said = "I will break off in the middle of a sentence, and the other model goes on as if nothing had happened."
    assert _last_answer(page).strip() == said
    assert "→" in str(page.text_content(".switch"))
    assert _stored(page)[-1]["content"].strip() == said


def test_a_reload_resumes_the_call(page: Any) -> None:
    _say(page, "Book a table for two")
    page.wait_for_selector(".figures")
    before = [page.locator(kind).all_text_contents() for kind in (".user", ".assistant", ".tool")]
    page.reload()
    page.wait_for_selector("#state.open")

    assert [page.locator(kind).all_text_contents() for kind in (".user", ".assistant", ".tool")] == before
    _say(page, "Are you open on Sunday?")
    page.wait_for_selector(".figures")
    assert [item["role"] for item in _stored(page)].count("user") == 2


def test_a_reload_in_mid_answer_keeps_what_was_handed_over(page: Any) -> None:
    _say(page, "Tell me a story")
    page.wait_for_function("document.querySelector('.assistant.live')?.textContent.length > 40")
    shown = _last_answer(page)
    page.reload()
    page.wait_for_selector("#state.open")

    assert _last_answer(page).startswith(shown)
    assert _stored(page)[-1]["metadata"] == {"interrupted": True}


def test_the_end_of_the_call_is_shown_after_the_farewell(page: Any) -> None:
    _say(page, "Bye")
    page.wait_for_selector("text=The call has ended.")

    assert _last_answer(page) == "Goodbye, and thank you for calling!"


def test_a_second_window_of_the_same_call_is_turned_away(page: Any) -> None:
    second = page.context.new_page()
    second.goto(page.url)

    second.wait_for_selector("text=This call is open in another window.")


@pytest.mark.parametrize("width", [340, 1200])
def test_nothing_is_cut_off_on_a_narrow_or_a_wide_screen(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 700})
    _say(page, "Book a table for two")
    page.wait_for_selector(".figures")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.getElementById('stop').getBoundingClientRect().right <= innerWidth")
