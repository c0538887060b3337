"""``micdrop-agent show --as-test``: whatever was stored, the test that is written has the same call again and passes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli_kept import fill

from micdrop_agent import ChatAgent, FallbackAgent, Message, Retry, ToolCall, ToolResult, tool
from micdrop_agent.cli import main
from micdrop_agent.cli._as_test import as_test
from micdrop_agent.testing import BACKENDS, ExpectationError, ScriptedProvider, fault, parts, run_virtual, say, talk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from micdrop_agent import Agent, Item
    from micdrop_agent.testing import Backend, Reply

each_backend = pytest.mark.parametrize("backend", BACKENDS)


def run(source: str, backend: Backend) -> None:
    """Run the test of a file, as pytest would."""
    module: dict[str, Any] = {"__name__": "test_call"}
    exec(compile(source, "test_call.py", "exec"), module)
    module["test_the_call"](backend)


def called(name: str, arguments: str, output: str | None, call_id: str = "c1") -> list[Item]:
    call = ToolCall(call_id, name, arguments)
    return [call] if output is None else [call, ToolResult(call_id, name, output)]


def user(text: str) -> Message:
    return Message("user", text)


def agent(text: str, **metadata: Any) -> Message:
    return Message("assistant", text, metadata or None)


PROMPT = Message("system", 'You are "brief".\nAnd \\ kind.')
CUT = '{"error":"cancelled"}'
CALLS: dict[str, list[Item]] = {
    "empty": [PROMPT],
    "no prompt": [user("Hi"), agent("Hello.")],
    "greeting": [PROMPT, agent("Good morning!"), user("Hi"), agent("Hello.")],
    "quotes": [PROMPT, user("It's \"\"\"here\"\"\" '''\\"), agent('He said "no",\nthen \'yes\' \\n {x} 100 % \u2028 \x1b[1m ü 🍕')],
    "tool": [PROMPT, user("Book!"), agent("One moment. "), *called("book", '{"day":"friday","n":2}', '"booked"'), agent("Done.")],
    "two tools": [
        PROMPT, user("Book!"), *called("a", "{}", "1", "x"), *called("b", '{"class":1,"a b":null}', "[true]", "y"), agent("Done."),
        user("Again!"), *called("a", "{}", "2", "x"), agent("Done again."),
    ],
    "tool error": [PROMPT, user("Book!"), *called("book", "{}", '{"error":"we are full"}'), agent("Sorry.")],
    "bad arguments": [PROMPT, user("Book!"), *called("book", "{oops", '{"error":"not valid JSON"}'), agent("Sorry.")],
    "unknown name": [PROMPT, user("Book!"), *called("no such.tool", "{}", '{"error":"there is no tool"}'), agent("Sorry.")],
    "output that is no JSON": [PROMPT, user("Book!"), *called("book", "", "plain"), agent("Done.")],
    "interrupted": [PROMPT, user("Tell me"), agent("Once upon", interrupted=True), user("Stop!"), agent("Fine.")],
    "interrupted tool": [PROMPT, user("Book!"), agent("Wait. "), *called("book", "{}", CUT), user("Stop!"), agent("Fine.")],
    "interrupted in a second tool": [
        PROMPT, user("Book!"), *called("book", "{}", '"ok"', "1"), *called("book", "{}", CUT, "2"), user("No!"), agent("Fine."),
    ],
    "tool at the end": [PROMPT, user("Bye"), agent("Goodbye."), *called("end_call", "{}", '{"success":true}')],
    "open call": [PROMPT, user("Book!"), *called("book", "{}", None)],
    "noise": [PROMPT, user("Hi"), agent("Hello."), *called("ignore_user_noise", "{}", '"ok"'), user("Bye"), agent("Bye.")],
    "noise first": [PROMPT, *called("ignore_user_noise", "{}", '"ok"'), user("Bye"), agent("Bye.")],
    "no answer": [PROMPT, user("Hi"), user("Are you there?"), agent("Yes."), user("Good")],
    "note": [PROMPT, user("Hi"), agent("Hello."), Message("system", "The caller is angry."), user("And?"), agent("Yes.")],
    "started again": [PROMPT, user("When?"), agent("We op", interrupted=True), agent("At nine.")],
    "started again after a tool": [
        PROMPT, user("When?"), *called("look", "{}", "9"), agent("We op", interrupted=True), agent("At nine."),
    ],
    "names that Python reads otherwise": [
        PROMPT, user("Go!"), *called("go", '{"\u00ba":1,"self":2,"tool":3,"größe":4}', "1"), agent("Done."),
    ],
    "cut in a tag": [PROMPT, user("Tell me"), agent("Once <thi", interrupted=True), user("1"), agent("<", interrupted=True)],
    "two texts": [PROMPT, user("When?"), agent("At "), agent("nine.")],
    "surrogate": [PROMPT, user("\udc80 ok"), agent("fine \ud83c ok")],
}  # fmt: skip


@each_backend
@pytest.mark.parametrize("name", CALLS)
def test_what_was_stored_passes_as_a_test(name: str, backend: Backend) -> None:
    run(as_test(name, CALLS[name]), backend)


def test_another_model_fails_it_with_what_was_expected() -> None:
    source = as_test("a", CALLS["tool"]).replace("'text': ['Done.']", "'text': ['No.']")

    with pytest.raises(ExpectationError, match=r"should have said 'Done\.'"):
        run(source, "asyncio")


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
    lambda text: text.strip("\ufeff\u200b\u200c\u200d\u2060 ").strip()
)
values = st.none() | st.booleans() | st.integers(-9, 9) | texts
answers = st.one_of(
    texts.map(lambda text: [agent(text)]),
    texts.map(lambda text: [agent(text, interrupted=True)]),
    st.tuples(st.sampled_from(["book", "look-up"]), st.dictionaries(texts, values, max_size=2), values, texts).map(
        lambda one: [*called(one[0], json.dumps(one[1]), json.dumps(one[2])), agent(one[3])]
    ),
)


@settings(max_examples=15)
@given(turns=st.lists(st.tuples(texts, answers), max_size=4), backend=st.sampled_from(BACKENDS))
def test_any_call_passes_as_a_test(turns: Sequence[tuple[str, list[Item]]], backend: Backend) -> None:
    items = [item for said, answer in turns for item in (user(said), *answer)]
    run(as_test("any", [PROMPT, *items]), backend)


# ------------------------------------------------------------------------------------------- from a real call


@tool
async def book(day: str) -> str:
    """Book a table."""
    await anyio.sleep(0.1)
    if day == "sunday":
        raise RuntimeError("closed")
    return f"booked {day}"


def chain(server: ScriptedProvider) -> Agent:
    def child(host: str) -> Callable[[], Agent]:
        return lambda: ChatAgent(
            model="m",
            api_key="k",
            base_url=f"http://{host}.test/v1",
            connect=server.connect,
            retry=Retry(max_retries=0),
        )

    return FallbackAgent([child("one"), child("two")], tools=[book], after_partial="restart", raise_on_failure=False)


@each_backend
def test_a_call_with_fallbacks_interruptions_and_errors_of_tools_passes_as_a_test(backend: Backend) -> None:
    def wanted(day: str) -> Reply:
        return parts([{"tool": "book", "args": {"day": day}}])

    script = {
        "one.test": [fault("cut_after_text", text=["We op"]), *[fault("status")] * 9],
        "two.test": [
            say("At nine."),
            wanted("sunday"),
            say("Closed."),
            wanted("friday"),
            say("Done, ", "and more", gap=1),
        ],
    }

    async def scenario() -> list[Item]:
        async with ScriptedProvider(script) as server, chain(server) as agent:
            await talk(agent, "When?")
            await talk(agent, "Sunday!")
            await talk(agent, "Friday!", interrupt_after="Done")
            return list(agent.conversation)

    items = run_virtual(backend, scenario)
    assert [item.content for item in items if isinstance(item, Message)][-1] == "Done, "
    run(as_test("real", items), backend)


# ------------------------------------------------------------------------------------------- the command


def test_the_command_writes_a_file_that_pytest_runs_and_never_writes_over_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, file = tmp_path / "calls.db", tmp_path / "test_call.py"
    fill(store, 'a"""da', *CALLS["quotes"], *CALLS["tool"][1:])

    assert main(["show", str(store), 'a"""da', "--as-test", str(file)]) == 0
    assert "pytest" in capfd.readouterr().out
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr

    assert main(["show", str(store), 'a"""da', "--as-test", str(file)]) == 1
    assert "not written over" in capfd.readouterr().err


@pytest.mark.parametrize("words", [["--as-test", "test.py"], ["ada", "--json", "--as-test", "test.py"]])
def test_options_that_do_not_fit_together_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["show", "calls.db", *words])
    assert left.value.code == 2
