from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import AnswerResult, FallbackAgent, ProviderError, TraceEvent, render_trace, tool
from micdrop_agent.model.protocol import Usage
from micdrop_agent.testing import Call, ScriptedAgent, run_virtual

if TYPE_CHECKING:
    from micdrop_agent.result import EndStatus

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that every element is closed, and collects what a reader sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def classes(self, wanted: str) -> list[dict[str, str | None]]:
        return [attrs for _, attrs in self.elements if wanted in (attrs.get("class") or "").split()]


def result(text: str = "Hello.", status: EndStatus = "completed", **facts: Any) -> AnswerResult:
    facts.setdefault("duration", 1.0)
    return AnswerResult(text=text, status=status, **facts)


@tool
def look(where: str) -> str:
    """Look."""
    return where


def talked() -> list[AnswerResult]:
    """The results of a call with a switch, a tool, a barge-in and a failure."""
    results: list[AnswerResult] = []
    down = ProviderError("down", kind="server")

    async def scenario() -> None:
        agent = FallbackAgent(
            [
                lambda: ScriptedAgent([0.2, down]),
                lambda: ScriptedAgent([0.1, Call("look", {"where": "sofa"}), "There."], [0.1, "Well, ", 1.0], [down]),
            ],
            names=["<first>", "second"],
            tools=[look],
            raise_on_failure=False,
        )
        async with agent:
            for cut in (False, True, False):
                agent.add_user_message("Where?")
                answer = agent.answer()
                if cut:
                    await answer.receive()
                    agent.cancel()
                results.append(await answer.wait())

    run_virtual("asyncio", scenario)
    return results


def test_every_attempt_tool_and_mark_is_in_the_picture() -> None:
    page = Page(render_trace(talked(), prompts=["Where?"], title="A call"))
    assert [attrs["class"] for tag, attrs in page.elements if tag == "section"] == ["completed", "cancelled", "failed"]
    bars = [attrs["class"] for attrs in page.classes("bar")]
    assert bars[:4] == ["bar answer ok", "bar attempt failed", "bar attempt ok", "bar tool ok"]
    hovers = [attrs["title"] for attrs in page.classes("bar")]
    assert hovers[1] == "attempt <first>: failed\nfrom 0 to 200 ms (200 ms)\nagent: <first>\nerror: server"
    symbols = [(attrs["class"] or "").removeprefix("symbol ") for attrs in page.classes("symbol")]
    assert symbols[:2] == ["switch", "first_chunk"]
    assert "cancel" in symbols
    text = " ".join(page.text)
    assert "first chunk after" in text
    assert "3 answers: 1 completed, 1 cancelled, 1 failed" in text
    assert "all 2 agents failed" in text


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    page = render_trace(talked())
    assert "<script" not in page
    assert not re.search(r"https?:|url\(|@import|\ssrc=|\shref=|\son\w+=", page)
    assert "default-src 'none'" in page


def test_what_was_said_comes_in_escaped() -> None:
    evil = "<script>alert('x')</script> & \"quoted\" \x00\ud800"
    page = render_trace([result(evil, "failed", error=ValueError(evil))], prompts=[evil], title=evil)
    assert "<script" not in page
    assert "\ufffd" in page
    assert page.encode()
    assert sum("<script>alert('x')</script> & \"quoted\"" in text for text in Page(page).text) >= 4


def test_a_bar_stands_where_its_times_say() -> None:
    trace = (
        TraceEvent(0.25, "request", {"number": 1, "provider": "chat", "model": "m"}),
        TraceEvent(0.5, "headers", {"number": 1}),
        TraceEvent(0.75, "response", {"number": 1, "finish": "stop"}),
    )
    page = Page(render_trace([result(trace=trace, requests=1)]))
    (bar,) = page.classes("request")[1:]  # the first is the legend's
    assert bar["style"] == "left:25.000%;width:50.000%;--waited:50.0%"
    assert bar["title"] == (
        "request m: ok\nfrom 250 ms to 750 ms (500 ms)\nfirst byte at 500 ms, after 250 ms\n"
        "number: 1\nprovider: chat\nmodel: m\nfinish: stop"
    )
    ticks = [attrs["style"] for attrs in page.classes("tick")]
    assert ticks == [f"left:{percent}.000%" for percent in range(0, 101, 20)]


def test_the_wait_for_the_first_word_is_drawn_apart_from_the_words() -> None:
    trace = (
        TraceEvent(0.0, "request", {"number": 1, "model": "m"}),
        TraceEvent(0.1, "headers", {"number": 1}),  # then it thinks
        TraceEvent(0.8, "first_chunk", {}),
        TraceEvent(2.0, "response", {"number": 1, "finish": "stop"}),
    )
    page = Page(render_trace([result(trace=trace, duration=2.0), result("", "failed", duration=2.0)]))
    spoken, silent = (attrs for attrs in page.classes("answer") if "bar" in str(attrs["class"]))

    assert spoken["style"] == "left:0.000%;width:100.000%;--waited:40.0%"
    assert spoken["title"] == "answer\nfrom 0 to 2 s (2 s)\nfirst word at 800 ms, after 800 ms"
    assert "first word after 800 ms, then 1.2 s of text" in " ".join(page.text)
    assert silent["style"] == "left:0.000%;width:100.000%;--waited:100.0%"


def test_figures_are_told_as_far_as_they_are_known() -> None:
    usage = Usage(input_tokens=1234)
    answers = [result(usage=usage, requests=2, time_to_first_chunk=0.2126), result("", "skipped", duration=0.0)]
    text = " ".join(Page(render_trace(answers)).text)
    assert "first chunk 213 ms · 1 s in all · 2 requests · 1,234 tokens in, ? out" in text
    assert "nothing was said" in text
    assert "No answer was given" in render_trace([])


@given(
    at=st.lists(st.floats(0, 1e5), max_size=8),
    kinds=st.lists(st.sampled_from(["attempt", "hedge", "request", "response", "tool_started", "retry", "cancel"])),
    word=st.text(max_size=5),
)
def test_any_trace_gives_a_whole_page(at: list[float], kinds: list[Any], word: str) -> None:
    trace = tuple(
        TraceEvent(seconds, kind, {"agent": word, "number": word, "call": word, "wait": seconds, "error": word})
        for seconds, kind in zip(sorted(at), kinds, strict=False)
    )
    page = render_trace([result(word, trace=trace, duration=max(at, default=0.0))], prompts=[word])
    assert Page(page.encode().decode()).elements


def test_the_page_is_loaded_by_nobody_who_did_not_ask() -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; import micdrop_agent; print(sorted(sys.modules))"
    # As a user starts it: where coverage is measured, it would load sqlite3 for itself.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert "_trace_page" not in loaded
    assert "sqlite3" not in loaded
