"""Cassettes: recorded once, played for ever, on every loop, with nothing secret in them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from micdrop_agent import ChatAgent, FallbackAgent, MistralAgent, OpenaiAgent, Retry, Timeouts, tool
from micdrop_agent.testing import (
    BACKENDS,
    Cassette,
    CassetteError,
    ReceivedRequest,
    ScriptedProvider,
    UnrecordedRequestError,
    call_tool,
    cancel_everywhere,
    fault,
    parts,
    run_virtual,
    say,
    talk_to,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from micdrop_agent import Agent, AnswerResult
    from micdrop_agent.testing import Backend, Exchange, Reply

KEY = "sk-live-0123456789abcdef"
each_backend = pytest.mark.parametrize("backend", BACKENDS)
QUESTIONS = ("When do you open?", "Thank you.")


def chat(cassette: Cassette, **options: Any) -> ChatAgent:
    given: dict[str, Any] = {
        "model": "m",
        "api_key": KEY,
        "base_url": "http://one.test/v1",
        "connect": cassette.connect,
    }
    return ChatAgent(**given | options)


async def ask(agent: Agent, *questions: str) -> list[AnswerResult]:
    found = []
    async with agent:
        for question in questions:
            agent.add_user_message(question)
            found.append(await agent.answer().wait())
    return found


def told(results: Sequence[AnswerResult]) -> list[Any]:
    """What must be the same, times included."""
    return [
        (one.text, one.status, one.requests, [(round(event.at, 6), event.kind) for event in one.trace], repr(one.error))
        for one in results
    ]


def recorded(
    path: Path, script: Any, make: Callable[[Cassette], Agent] = chat, *questions: str, **options: Any
) -> list[Any]:
    """Record a conversation with a scripted server; what the agent told."""

    async def scenario() -> list[Any]:
        async with ScriptedProvider(script) as provider:
            cassette = Cassette(path, "record", upstream=provider.connect, **options)
            return told(await ask(make(cassette), *(questions or QUESTIONS)))

    return run_virtual("asyncio", scenario)


def played(
    path: Path, backend: Backend, make: Callable[[Cassette], Agent] = chat, *questions: str, **options: Any
) -> Any:
    cassette = Cassette(path, "replay", **options)

    async def scenario() -> list[Any]:
        return told(await ask(make(cassette), *(questions or QUESTIONS)))

    return run_virtual(backend, scenario)


SCRIPT = [say("We open ", "at nine.", gap=0.25), say("You are ", "welcome.", gap=0.1)]


# ------------------------------------------------------------------------------------------- playing


@pytest.mark.parametrize("agent", [ChatAgent, OpenaiAgent, MistralAgent])
def test_what_was_recorded_is_played_with_its_times_alike_on_every_loop(tmp_path: Path, agent: Any) -> None:
    def make(cassette: Cassette) -> Agent:
        made: Agent = agent(api_key=KEY, model="m", base_url="http://one.test/v1", connect=cassette.connect)
        return made

    first = recorded(tmp_path / "a.jsonl", SCRIPT, make)
    assert [one[0] for one in first] == ["We open at nine.", "You are welcome."]
    for backend in (*BACKENDS, "asyncio-native"):
        assert played(tmp_path / "a.jsonl", backend, make) == first


def test_it_is_the_same_on_uvloop_in_real_time(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop")
    first = recorded(tmp_path / "a.jsonl", SCRIPT)
    cassette = Cassette(tmp_path / "a.jsonl", speed=0)

    async def scenario() -> list[AnswerResult]:
        return await ask(chat(cassette), *QUESTIONS)

    results = anyio.run(scenario, backend_options={"loop_factory": uvloop.new_event_loop})
    assert [(one.text, [event.kind for event in one.trace]) for one in results] == [
        (text, [kind for _, kind in trace]) for text, _, _, trace, _ in first
    ]


@each_backend
@pytest.mark.parametrize(("speed", "seconds"), [(1.0, 0.5), (2.0, 0.25), (0.0, 0.0)])
def test_the_pauses_are_those_of_the_recording_or_quicker(
    tmp_path: Path, backend: Backend, speed: float, seconds: float
) -> None:
    recorded(tmp_path / "a.jsonl", SCRIPT)
    trace = played(tmp_path / "a.jsonl", backend, chat, *QUESTIONS, speed=speed)[0][3]
    assert trace[-1][0] == pytest.approx(seconds)


@each_backend
def test_the_same_request_twice_gets_its_answers_in_order_and_a_third_one_is_an_error(
    tmp_path: Path, backend: Backend
) -> None:
    def make(cassette: Cassette) -> Agent:
        return chat(cassette, max_context_tokens=1)  # so that nothing said before is sent

    script = [say("One."), say("Two.")]
    recorded(tmp_path / "a.jsonl", script, make, "Again!", "Again!")
    assert [one[0] for one in played(tmp_path / "a.jsonl", backend, make, "Again!", "Again!")] == ["One.", "Two."]
    with pytest.raises(UnrecordedRequestError, match="2 recorded answers"):
        played(tmp_path / "a.jsonl", backend, make, "Again!", "Again!", "Again!")


@each_backend
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (fault("status", status=503), "503"),
        (fault("status", status=429, retry_after="9"), "429"),
        (fault("close_before_status"), "connection"),
        (fault("cut_after_text"), "closed in the middle"),
        (fault("reset_after_text"), "connection"),
        (fault("error_after_text"), "error"),
        (fault("end_without_mark"), "end"),
        (fault("stall_after_headers"), "in time (5 seconds"),
        (fault("stall_before_headers"), "in time (5 seconds"),
    ],
)
def test_an_error_and_a_dropped_connection_are_played_as_they_were(
    tmp_path: Path, backend: Backend, reply: Reply, words: str
) -> None:
    def make(cassette: Cassette) -> Agent:
        return chat(cassette, retry=Retry(max_retries=0), raise_on_failure=False)

    first = recorded(tmp_path / "a.jsonl", [reply], make, "Hello?")
    assert first[0][1] == "failed"
    assert words in first[0][4]
    assert played(tmp_path / "a.jsonl", backend, make, "Hello?") == first


@each_backend
def test_a_refused_connection_is_refused_again(tmp_path: Path, backend: Backend) -> None:
    async def record() -> list[Any]:
        async with ScriptedProvider([say("Here.")]) as provider:
            provider.refuse = 1
            cassette = Cassette(tmp_path / "a.jsonl", "record", upstream=provider.connect)
            return told(await ask(chat(cassette, retry=Retry(max_retries=1, first_wait=0.5, jitter=0.0)), "Hello?"))

    first = run_virtual("asyncio", record)
    assert first[0][0] == "Here."
    again = played(
        tmp_path / "a.jsonl",
        backend,
        lambda tape: chat(tape, retry=Retry(max_retries=1, first_wait=0.5, jitter=0.0)),
        "Hello?",
    )
    assert again == first
    assert any(kind == "retry" for _, kind in again[0][3])


def two(cassette: Cassette, **options: Any) -> Agent:
    def child(host: str) -> Callable[[], Agent]:
        return lambda: chat(cassette, base_url=f"http://{host}.test/v1", retry=Retry(max_retries=0))

    return FallbackAgent([child("one"), child("two")], names=["one", "two"], **options)


@each_backend
def test_under_a_fallback_each_child_hears_its_own_server(tmp_path: Path, backend: Backend) -> None:
    script = {"one.test": [fault("cut_after_text", text=["We open "])], "two.test": [say("at nine.")]}
    first = recorded(tmp_path / "a.jsonl", script, two, "When?")
    assert first[0][0] == "We open at nine."
    assert played(tmp_path / "a.jsonl", backend, two, "When?") == first


@each_backend
def test_a_body_counts_as_the_same_whatever_its_order_and_white_space(tmp_path: Path, backend: Backend) -> None:
    async def post(cassette: Cassette, body: bytes) -> bytes:
        stream = await cassette.connect("one.test", 80, False)
        await stream.send(b"POST /x HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        data = b""
        while b"0\r\n\r\n" not in data:
            data += await stream.receive()
        await stream.aclose()
        return data

    async def record() -> bytes:
        async with ScriptedProvider([say("Here.")]) as provider:
            cassette = Cassette(tmp_path / "a.jsonl", "record", upstream=provider.connect)
            return await post(cassette, b'{"a": 1, "b": [1, 2]}')

    async def play() -> bytes:
        return await post(Cassette(tmp_path / "a.jsonl"), b'{"b":[1,2],\n"a":1}')

    async def other() -> bytes:
        return await post(Cassette(tmp_path / "a.jsonl"), b'{"b":[2,1],"a":1}')

    assert run_virtual(backend, play_after(record, play)).endswith(b"0\r\n\r\n")
    with pytest.raises(UnrecordedRequestError):
        run_virtual(backend, other)


def play_after(record: Callable[[], Any], play: Callable[[], Any]) -> Callable[[], Any]:
    run_virtual("asyncio", record)
    return play


# ------------------------------------------------------------------------------------------- what does not match


@each_backend
@pytest.mark.parametrize("make", [chat, two], ids=["alone", "under a fallback"])
def test_a_request_that_was_not_recorded_ends_the_test_with_the_nearest_and_a_diff(
    tmp_path: Path, backend: Backend, make: Any
) -> None:
    recorded(tmp_path / "a.jsonl", {"one.test": SCRIPT, "two.test": SCRIPT}, make)
    with pytest.raises(UnrecordedRequestError) as caught:
        played(tmp_path / "a.jsonl", backend, make, "Where are you?")
    words = str(caught.value)
    assert "the nearest is request 1 (line 2)" in words
    assert '-   "content": "When do you open?"' in words
    assert '+   "content": "Where are you?"' in words


@each_backend
def test_a_predicate_says_what_may_vary(tmp_path: Path, backend: Backend) -> None:
    recorded(tmp_path / "a.jsonl", SCRIPT)
    asked: list[str] = []

    def same(mine: Any, sent: Any) -> bool:
        asked.append(sent.json["model"])
        return bool(mine.json["messages"] == sent.json["messages"])

    again = played(tmp_path / "a.jsonl", backend, lambda tape: chat(tape, model="another"), *QUESTIONS, match=same)
    assert [one[0] for one in again] == ["We open at nine.", "You are welcome."]
    assert set(asked) == {"another"}


@each_backend
def test_a_response_that_its_client_left_is_played_so_far_and_no_further(tmp_path: Path, backend: Backend) -> None:
    async def record() -> None:
        async with ScriptedProvider(SCRIPT) as provider:
            agent = chat(Cassette(tmp_path / "a.jsonl", "record", upstream=provider.connect))
            async with agent:
                agent.add_user_message(QUESTIONS[0])
                async for chunk in agent.answer():
                    assert chunk == "We open "
                    agent.cancel()

    run_virtual("asyncio", record)
    with pytest.raises(UnrecordedRequestError, match="where its client hung up"):
        played(tmp_path / "a.jsonl", backend, chat, QUESTIONS[0])


@each_backend
def test_replaying_opens_no_connection(tmp_path: Path, backend: Backend) -> None:
    recorded(tmp_path / "a.jsonl", SCRIPT)

    async def never(*_: Any) -> Any:
        raise AssertionError("a connection was opened")

    assert played(tmp_path / "a.jsonl", backend, chat, *QUESTIONS, upstream=never)[0][0] == "We open at nine."
    with pytest.raises(UnrecordedRequestError):
        played(tmp_path / "a.jsonl", backend, chat, "Who?", upstream=never)


@each_backend
def test_once_records_the_first_time_and_plays_from_then_on(tmp_path: Path, backend: Backend) -> None:
    async def scenario() -> list[Any]:
        async with ScriptedProvider(SCRIPT) as provider:
            cassette = Cassette(tmp_path / "new" / "a.jsonl", upstream=provider.connect)
            results = await ask(chat(cassette), *QUESTIONS)
            return [cassette.recording, provider.connections > 0, [one.text for one in results]]

    texts = ["We open at nine.", "You are welcome."]
    assert run_virtual(backend, scenario) == [True, True, texts]
    assert run_virtual(backend, scenario) == [False, False, texts]


def test_a_cassette_that_has_just_recorded_plays_to_the_next_loop(tmp_path: Path) -> None:
    made: list[Cassette] = []

    async def record() -> list[Any]:
        async with ScriptedProvider(SCRIPT) as provider:
            made.append(Cassette(tmp_path / "a.jsonl", "record", upstream=provider.connect))
            return told(await ask(chat(made[0]), *QUESTIONS))

    async def play() -> list[Any]:
        return told(await ask(chat(made[0]), *QUESTIONS))

    first = run_virtual("asyncio", record)
    assert [run_virtual(backend, play) for backend in BACKENDS] == [first] * 2


@each_backend
def test_every_invariant_holds_wherever_a_recorded_conversation_with_a_tool_is_interrupted(
    tmp_path: Path, backend: Backend
) -> None:
    @tool
    async def hours(day: str) -> str:
        """When we open."""
        await anyio.sleep(0.1)
        return f"{day}: nine"

    def make(cassette: Cassette) -> Agent:
        return chat(cassette, tools=[hours])

    script = [call_tool("hours", {"day": "friday"}), say("At ", "nine.", gap=0.2), say("Bye.")]
    recorded(tmp_path / "a.jsonl", script, make, "When on Friday?", "Thanks.")
    cassette = Cassette(tmp_path / "a.jsonl")
    report = cancel_everywhere(
        talk_to(lambda: make(cassette), "When on Friday?", "Thanks."),
        backends=[backend],
        inject=["cancel", "answer", "host scope", "stop reading"],
        expect=["At nine.", "Bye."],
    )
    assert report.points > 100


# ------------------------------------------------------------------------------------------- secrets

KEYS = st.text(st.sampled_from("abcXYZ0189-_.~+/=\"\\{}:;,!$&'()*@"), min_size=12, max_size=40).filter(
    lambda key: key == key.strip() and not key.startswith("=") and len(set(key)) > 3
)
PLACES = ("header", "bearer", "body", "url", "error", "chunk", "split chunk", "cookie", "response header")
WRITTEN: dict[str, Callable[[str], str]] = {
    "plain": lambda key: key,
    "for a URL": lambda key: quote(key, safe=""),
    "for a form": quote_plus,
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of more": lambda key: base64.urlsafe_b64encode(f"me:{key}, and more".encode()).decode(),
    "hexadecimal": lambda key: key.encode().hex(),
}


def _server(place: str, written: str) -> Callable[[ReceivedRequest], Reply]:
    async def reply(exchange: Exchange) -> None:
        headers = {"set-cookie": f"session={written}; Path=/"} if place == "cookie" else {}
        if place == "response header":
            headers = {"x-echo": f"you sent {written}"}
        if place == "error":
            await exchange.head(401, headers)
            await exchange.send(json.dumps({"error": {"message": f"wrong key: {written}"}}).encode())
        else:
            data = b"data: " + json.dumps({"text": f"your key is {written}"}).encode() + b"\n\n"
            middle = data.find(b"key is ") + 7 + len(written) // 2
            await exchange.head(200, headers)
            for piece in (data[:middle], data[middle:]) if place == "split chunk" else (data,):
                await exchange.send(piece)
                await anyio.sleep(0.1)
        await exchange.end()

    return lambda _: reply


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=KEYS,
    places=st.sets(st.sampled_from(PLACES), min_size=1),
    form=st.sampled_from(sorted(WRITTEN)),
    backend=st.sampled_from(BACKENDS),
)
def test_a_key_that_is_in_use_never_reaches_the_file(
    tmp_path: Path, key: str, places: set[str], form: str, backend: Backend
) -> None:
    written = WRITTEN[form](key)
    path = tmp_path / "a.jsonl"
    path.unlink(missing_ok=True)

    async def scenario() -> None:
        for place in sorted(places):
            async with ScriptedProvider(_server(place, written)) as provider:
                cassette = Cassette(path, "record", upstream=provider.connect)
                stream = await cassette.connect("one.test", 80, False)
                head = f"authorization: Bearer {key}" if place != "header" else f"x-api-key: {key}"
                target = f"/x?api_key={quote(key, safe='')}" if place == "url" else "/x"
                body = json.dumps({"key": written if place == "body" else "none"}).encode()
                await stream.send(
                    f"POST {target} HTTP/1.1\r\n{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
                )
                data = b""
                while b"0\r\n\r\n" not in data:
                    data += await stream.receive()
                await stream.aclose()

    run_virtual(backend, scenario)
    text = path.read_text()
    core = written if form != "base64 of more" else base64.urlsafe_b64encode(key.encode()).decode()[2:-4]
    forms = {core, key, json.dumps(key)[1:-1], json.dumps(json.dumps(key)[1:-1])[1:-1], quote(key, safe="")}
    assert not [form for form in forms if form in text]
    assert "[removed]" in text
    assert json.dumps(key)[1:-1] not in "".join(json.loads(line).get("text", "") for line in text.splitlines())


@each_backend
def test_a_key_that_the_model_spells_out_piece_by_piece_is_refused(tmp_path: Path, backend: Backend) -> None:
    async def scenario() -> None:
        async with ScriptedProvider([say("It is ", KEY[:9], KEY[9:], ".", gap=0.1)]) as provider:
            await ask(chat(Cassette(tmp_path / "a.jsonl", "record", upstream=provider.connect)), "What is the key?")

    with pytest.raises(CassetteError, match="still holds a key") as caught:  # without the provider's group around it
        run_virtual(backend, scenario)
    assert len(caught.traceback) < 6
    assert not (tmp_path / "a.jsonl").exists()


@each_backend
def test_a_character_that_comes_in_two_pieces_is_recorded_and_played(tmp_path: Path, backend: Backend) -> None:
    """A server that counts UTF-16 cuts a pair of surrogates: neither piece is text that UTF-8 can encode."""

    async def reply(exchange: Exchange) -> None:
        await exchange.head(200, {"content-type": "text/event-stream"})
        for piece in ("Pizza \\ud83c", "\\udf55!"):
            await exchange.send(b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % piece.encode())
        await exchange.send(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
        await exchange.end()

    first = recorded(tmp_path / "a.jsonl", [reply], chat, "Hungry?")
    assert first[0][0] == "Pizza \U0001f355!"
    assert played(tmp_path / "a.jsonl", backend, chat, "Hungry?") == first


@each_backend
def test_a_client_that_leaves_after_the_finish_reason_has_had_all(tmp_path: Path, backend: Backend) -> None:
    """What comes behind it is read beside the answer, for as long as the agent is open: that varies."""

    async def reply(exchange: Exchange) -> None:
        await exchange.head(200, {"content-type": "text/event-stream"})
        await exchange.send(b'data: {"choices":[{"index":0,"delta":{"content":"Nine."},"finish_reason":"stop"}]}\n\n')
        await anyio.sleep(60)
        await exchange.end()

    async def waiting() -> str:
        async with chat(Cassette(tmp_path / "a.jsonl")) as agent:
            agent.add_user_message("When?")
            result = await agent.answer().wait()
            await anyio.sleep(100)
            return result.text

    recorded(tmp_path / "a.jsonl", [reply], chat, "When?")
    assert '"how": "complete"' in (tmp_path / "a.jsonl").read_text()
    assert run_virtual(backend, waiting) == "Nine."


@each_backend
def test_organisations_and_what_the_user_names_are_removed_everywhere(tmp_path: Path, backend: Backend) -> None:
    import re

    async def reply(exchange: Exchange) -> None:
        await exchange.head(200, {"openai-organization": "acme-hotels-7", "openai-project": "proj_abcdefgh12"})
        await exchange.send(
            b'data: {"choices":[{"index":0,"delta":{"content":"acme-hotels-7 called +49 30 1234"}}]}\n\n'
        )
        await exchange.send(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
        await exchange.end()

    async def scenario() -> None:
        async with ScriptedProvider([reply]) as provider:
            cassette = Cassette(
                tmp_path / "a.jsonl",
                "record",
                upstream=provider.connect,
                redact=["Smith", re.compile(r"\+\d[\d ]+\d")],
            )
            await ask(chat(cassette), "I am Mr Smith of org-abcdefgh.")

    run_virtual(backend, scenario)
    text = (tmp_path / "a.jsonl").read_text()
    assert not [word for word in ("acme-hotels", "proj_abcdefgh12", "Smith", "1234", "org-abcdefgh") if word in text]

    def again() -> Any:
        cassette = Cassette(tmp_path / "a.jsonl", redact=["Smith", re.compile(r"\+\d[\d ]+\d")])

        async def play() -> str:
            return (await ask(chat(cassette), "I am Mr Smith of org-abcdefgh."))[0].text

        return run_virtual(backend, play)

    assert again() == "[removed] called [removed]"


@each_backend
def test_a_packed_response_is_unpacked_so_that_nothing_hides_in_it(tmp_path: Path, backend: Backend) -> None:
    import zlib

    async def reply(exchange: Exchange) -> None:
        packer = zlib.compressobj(wbits=31)
        await exchange.head(200, {"content-encoding": "gzip"})
        await exchange.send(packer.compress(f"the key is {KEY}".encode()) + packer.flush())
        await exchange.end()

    async def scenario() -> None:
        async with ScriptedProvider([reply]) as provider:
            cassette = Cassette(tmp_path / "a.jsonl", "record", upstream=provider.connect)
            stream = await cassette.connect("one.test", 80, False)
            await stream.send(f"GET / HTTP/1.1\r\nauthorization: Bearer {KEY}\r\n\r\n".encode())
            while b"0\r\n\r\n" not in await stream.receive():
                pass
            await stream.aclose()

    run_virtual(backend, scenario)
    assert '"text": "the key is [removed]"' in (tmp_path / "a.jsonl").read_text()


# ------------------------------------------------------------------------------------------- the file


def test_a_file_that_was_cut_anywhere_is_a_clear_error(tmp_path: Path) -> None:
    recorded(tmp_path / "a.jsonl", SCRIPT)
    whole = (tmp_path / "a.jsonl").read_text()
    for end in range(0, len(whole), 7):
        (tmp_path / "b.jsonl").write_text(whole[:end])
        with pytest.raises(CassetteError, match=r"b\.jsonl, line \d+: .*(cut|not a cassette|not JSON)"):
            Cassette(tmp_path / "b.jsonl")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"micdrop_cassette": 1', '"micdrop_cassette": 2'), "format 2.*newer micdrop_agent"),
        (lambda text: text.replace('{"end": 1', '<<<<<<< HEAD\n{"end": 1'), "line 6: a merge conflict"),
        (lambda text: text.replace('{"end": 1', '=======\n{"end": 1'), "line 6: a merge conflict"),
        (lambda text: text.replace('{"end": 1', '>>>>>>> theirs\n{"end": 1'), "line 6: a merge conflict"),
        (lambda text: text.replace('"how": "complete"', '"how": "somehow"'), "line 6: .*somehow"),
        (lambda text: text.replace('"status": 200, ', ""), "line 3: .*status"),
        (lambda text: text.replace('{"body": 1', '{"bodies": 1'), "line 4: unknown line 'bodies'"),
        (lambda text: text.replace('{"end": 1', '{"end": 2'), "line 6: .*request 2"),
        (lambda text: text + text, "after the last line"),
        (lambda text: "[]\n" + text, "line 1: this is not a JSON object"),
        (lambda text: "hello\n", "line 1: this is not JSON"),
        (lambda text: '{"a": 1}\n', "line 1: this is not a cassette"),
    ],
)
def test_a_file_that_is_wrong_is_a_clear_error(tmp_path: Path, change: Callable[[str], str], words: str) -> None:
    recorded(tmp_path / "a.jsonl", [say("Hello.")], chat, "Hi")
    text = (tmp_path / "a.jsonl").read_text()
    (tmp_path / "b.jsonl").write_text(change(text))
    with pytest.raises(CassetteError, match=words):
        Cassette(tmp_path / "b.jsonl")


def test_a_missing_file_and_wrong_arguments_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="--cassette-mode=record"):
        Cassette(tmp_path / "none.jsonl", "replay")
    with pytest.raises(ValueError, match="not 'twice'"):
        Cassette(tmp_path / "none.jsonl", "twice")  # type: ignore[arg-type] # it is what is tested
    with pytest.raises(ValueError, match="speed"):
        Cassette(tmp_path / "none.jsonl", speed=-1)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6), backend=st.sampled_from(BACKENDS))
def test_any_bytes_come_back_as_they_were(tmp_path: Path, pieces: list[bytes], backend: Backend) -> None:
    async def reply(exchange: Exchange) -> None:
        await exchange.head(200, {"content-type": "audio/pcm"})
        for piece in pieces:
            await exchange.send(piece)
            await anyio.sleep(0.5)
        await exchange.end()

    async def get(cassette: Cassette) -> dict[float, bytes]:
        stream = await cassette.connect("one.test", 80, False)
        await stream.send(b"GET /speech HTTP/1.1\r\n\r\n")
        found: dict[float, bytes] = {}
        begin = anyio.current_time()
        while not found or not found[max(found)].endswith(b"0\r\n\r\n"):
            data = await stream.receive()
            at = round(anyio.current_time() - begin, 3)
            found[at] = found.get(at, b"") + data
        await stream.aclose()
        found[0.0] = found[0.0].partition(b"\r\n\r\n")[2]  # the order of the headers may differ
        return found

    async def record() -> Any:
        async with ScriptedProvider([reply]) as provider:
            return await get(Cassette(tmp_path / "a.jsonl", "record", upstream=provider.connect))

    async def play() -> Any:
        return await get(Cassette(tmp_path / "a.jsonl"))

    first = run_virtual("asyncio", record)
    assert run_virtual(backend, play) == first


@each_backend
def test_a_time_out_while_it_waits_does_not_break_the_connection(tmp_path: Path, backend: Backend) -> None:
    recorded(
        tmp_path / "a.jsonl",
        [parts([{"wait_ms": 3000}, {"text": ["Late."]}])],
        lambda tape: chat(tape, timeouts=Timeouts(first_chunk=9)),
        "Hi",
    )
    quick = played(
        tmp_path / "a.jsonl",
        backend,
        lambda tape: chat(tape, timeouts=Timeouts(first_chunk=1), retry=Retry(max_retries=0), raise_on_failure=False),
        "Hi",
    )
    assert quick[0][1] == "failed"
    assert quick[0][3][-1][0] == pytest.approx(1.0)
