"""The extraction filter: one value out of the text, the rest spoken, at any cutting."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from micdrop_agent.options import ExtractJson, ExtractTag
from micdrop_agent.text import ExtractFilter, extract_text
from micdrop_agent.text import extract as extract_module
from micdrop_agent.text.braces import BraceScanner

JSON = ExtractJson()
TAG = ExtractTag(start_tag="<X>", end_tag="</X>")
OPTIONS = [JSON, TAG, ExtractTag(start_tag="```json", end_tag="```"), ExtractTag(start_tag=" #\n#", end_tag="#")]
HERE = Path(__file__).parent

PIECES = st.sampled_from(
    [
        '{"a":1}',
        "{}",
        "{",
        "}",
        '{"',
        '"',
        "\\",
        ":",
        "1",
        "a",
        "Hi",
        ".",
        " ",
        "\n",
        "  ",
        "`",
        "```",
        "```json",
        "json",
        "JSON",
        "<",
        "<X",
        "<X>",
        "X>",
        "</",
        "</X>",
        "#",
        " #\n#",
        "é",
        "{ ",
        "{\n}",
        '{"b":"}"}',
        '{"c":"\\"}"}',
        "[",
        "]",
    ],
)
TEXTS = st.lists(PIECES, max_size=14).map("".join)


def run(chunks: list[str], options: ExtractJson | ExtractTag) -> tuple[str, bool, Any, str | None]:
    extract = ExtractFilter(options)
    spoken = "".join([extract.feed(chunk) for chunk in chunks]) + extract.finish()
    return spoken, extract.found, extract.value, extract.warning


def cut(text: str, places: list[int]) -> list[str]:
    ends = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(ends)] or [text]


def value_start(text: str, options: ExtractJson | ExtractTag) -> int | None:
    if isinstance(options, ExtractTag):
        at = text.find(options.start_tag)
        return at if at >= 0 else None
    match = re.search(r'\{\s*["}]', text)
    return match.start() if match else None


@pytest.mark.parametrize("options", OPTIONS)
@given(text=TEXTS, places=st.lists(st.integers(0, 200), max_size=12))
@example(text="``````json", places=[3])
@example(text=" ```json \n{", places=list(range(12)))
def test_any_cutting_gives_the_same_speech_and_value(
    options: ExtractJson | ExtractTag, text: str, places: list[int]
) -> None:
    whole = run([text], options)
    assert run(cut(text, places), options) == whole
    assert run(list(text), options) == whole


@pytest.mark.parametrize("options", OPTIONS)
@given(text=TEXTS)
def test_speech_is_the_text_before_the_value_without_blanks_and_fence(
    options: ExtractJson | ExtractTag, text: str
) -> None:
    spoken, found, value, _ = run(list(text), options)
    start = value_start(text, options)
    if start is None:
        assert (spoken, found, value) == (text, False, None)
    else:
        expected = re.sub(r"\s*(?:```(?:json)?\s*)?\Z", "", text[:start], flags=re.IGNORECASE)
        assert spoken in {expected, expected.rstrip()}
        assert text.startswith(spoken)


@given(text=TEXTS, number=st.integers(), places=st.lists(st.integers(0, 200), max_size=12))
def test_a_value_behind_any_prose_is_found(text: str, number: int, places: list[int]) -> None:
    prose = text.replace("{", "").replace("<", "")
    value: dict[str, Any] = {"n": number, "s": '}"\\{', "o": {"x": [{}]}}
    assert run(cut(prose + json.dumps(value) + "}x", places), JSON)[1:3] == (True, value)
    assert run(cut(prose + f"<X> {number}\n</X> tail", places), TAG)[1:3] == (True, str(number))


@pytest.mark.parametrize("text", ["a < b", "Use {name}", "see [1]", "50 % {", "`x`", "<Y>", "{ name"])
def test_a_look_alike_is_spoken(text: str) -> None:
    for options in (JSON, TAG):
        assert run(list(text), options) == (text, False, None, None)


def test_nothing_waits_longer_than_needed() -> None:
    extract = ExtractFilter(TAG)
    assert extract.feed("a <") == "a"
    assert extract.feed("b") == " <b"
    assert extract.feed(" and c") == " and c"
    extract = ExtractFilter(JSON)
    assert extract.feed("Use {") == "Use"
    assert extract.feed("n") == " {n"


def test_in_value_tells_where_the_text_broke_off() -> None:
    for options, text in ((JSON, 'ok {"a":1}'), (TAG, "ok <X>1</X>")):
        extract = ExtractFilter(options)
        states = [(extract.feed(char), extract.in_value)[1] for char in text]
        assert states[3] is False
        assert states[-2] is True
        assert states[-1] is False
        assert extract.finish() == ""


@pytest.mark.parametrize(
    "payload",
    [
        '{"a":}',
        '{"a":1',
        '{"',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":1e999}',
        "{\u00a0}",
        '{"a":' * 60_000 + "1" + "}" * 60_000,
    ],
)
def test_a_payload_that_is_not_json_is_neither_spoken_nor_found_but_warned_of(payload: str) -> None:
    spoken, found, value, warning = run(["ok " + payload + " tail"], JSON)
    assert (spoken, found, value) == ("ok", False, None)
    assert warning is not None
    assert "ok" not in warning


def test_a_tag_without_end_takes_the_rest_of_the_text() -> None:
    assert run(["a <X> 4", "2 </", "X"], TAG) == ("a", True, "42 </X", None)


def test_a_text_without_value_comes_back_untrimmed() -> None:
    assert extract_text(" Just text ", JSON) == (" Just text ", False, None)
    assert extract_text('Half. {"share":0.5}', JSON) == ("Half.", True, {"share": 0.5})
    assert extract_text('The answer is 42. {"score":42}', JSON) == ("The answer is 42.", True, {"score": 42})


def _extract_vectors() -> list[Any]:
    return [
        pytest.param(json.loads(path.read_text("utf-8")), id=path.stem)
        for path in sorted((HERE / "vectors" / "extract").glob("*.json"))
    ]


@pytest.mark.parametrize("vector", _extract_vectors())
def test_the_recorded_behaviour_is_kept(vector: dict[str, Any]) -> None:
    given_options = vector["options"]["extract"]
    options = JSON if given_options.get("json") else TAG
    expected = dict(vector["expected"])
    expected.update(vector.get("right", {}).get("expected", {}))
    for step in vector["script"]:
        if step["op"] == "extract":
            result = expected["results"][step["as"]]
            spoken, found, value = extract_text(step["text"], options)
            assert spoken == result["message"]
            if "metadata" in result:
                assert (found, value) == (True, result["metadata"]["extracted"])
            elif given_options.get("save_in_metadata"):
                assert not found
    for requests in vector.get("provider", {}).values():
        chunks = [op["text"] for op in requests[0] if op["op"] == "delta"]
        wanted = (expected.get("text_trimmed") or expected["text"])["a1"]
        assert run(chunks, options)[0].rstrip() == wanted.rstrip()


def test_case_c_15_at_every_split() -> None:
    options = ExtractTag(start_tag="<TASK>", end_tag="</TASK>")
    text = "I'll note that! <TASK>Call mum</TASK>"
    for first in range(len(text)):
        for second in range(first, len(text)):
            chunks = [text[:first], text[first:second], text[second:]]
            assert run(chunks, options) == ("I'll note that!", True, "Call mum", None)


def test_a_long_value_in_small_pieces_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    class Counting(BraceScanner):
        def end_in(self, piece: str) -> int | None:
            nonlocal looked
            looked += len(piece)
            return super().end_in(piece)

    monkeypatch.setattr(extract_module, "BraceScanner", Counting)
    text = json.dumps({"long": "x y{" * 50_000})
    _, found, value, _ = run([text[i : i + 3] for i in range(0, len(text), 3)], JSON)
    assert found
    assert len(value["long"]) == 200_000
    assert looked <= len(text) + 3


class CountingText(str):
    """Counts the characters that searches in a window go through."""

    __slots__ = ()
    looked = 0

    def __radd__(self, other: str) -> CountingText:
        return CountingText(other + str(self))

    def find(self, *args: Any) -> int:
        CountingText.looked += len(self)
        return super().find(*args)


def test_a_long_tagged_value_in_small_pieces_is_looked_at_a_bounded_number_of_times() -> None:
    CountingText.looked = 0
    extract = ExtractFilter(TAG)
    extract.feed("<X>")
    for _ in range(70_000):
        extract.feed(CountingText("abc"))
    extract.feed("</X>")
    assert len(str(extract.value)) == 210_000
    assert CountingText.looked <= 210_000 * (1 + len("</X>"))


def test_a_long_run_of_white_space_is_not_joined_again_for_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = ExtractFilter._look

    def counting(self: ExtractFilter, text: str) -> str:
        nonlocal looks
        looks += 1
        return look(self, text)

    monkeypatch.setattr(ExtractFilter, "_look", counting)
    spaces = [" "] * 10_000
    for options in (JSON, TAG):
        assert run(["a", *spaces, "b"], options)[0] == "a" + " " * 10_000 + "b"
        assert run(["a", *spaces, '{"b":1}'], JSON)[0] == "a"
    assert looks < 10
