"""Pictures in what the user says: kept as JSON, sent in the form of each API, refused where nobody can see."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from micdrop_agent import (
    AnthropicAgent,
    ChatAgent,
    EchoAgent,
    FallbackAgent,
    GeminiAgent,
    Image,
    Message,
    MistralAgent,
    OpenaiAgent,
    Retry,
    wire,
)
from micdrop_agent.images import images_of, with_images
from micdrop_agent.providers.quirks import ChatQuirks
from micdrop_agent.testing import BACKENDS, ScriptedProvider, run_virtual, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent.testing import Backend

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 8
JPEG = b"\xff\xd8\xff\xe0" + b"x"
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8 "
URL = "https://example.test/photo.png"
DATA = base64.b64encode(PNG).decode()


@pytest.mark.parametrize(
    ("data", "kind"), [(PNG, "image/png"), (JPEG, "image/jpeg"), (b"GIF89a", "image/gif"), (WEBP, "image/webp")]
)
def test_the_kind_of_a_picture_is_found_out_from_its_bytes(data: bytes, kind: str) -> None:
    image = Image(data)
    assert image.media_type == kind
    assert Image(image.url) == image
    assert Image(bytearray(data)).source == data  # type: ignore[arg-type]  # any buffer does
    assert str(len(data)) in repr(image)
    assert "\\x" not in repr(image)


@pytest.mark.parametrize(
    "source",
    [b"", b"%PDF-1.7", "photo.png", "file:///etc/passwd", "data:image/png;base64,!", "data:text/plain;base64,eA=="],
)
def test_what_is_no_picture_is_refused(source: Any) -> None:
    with pytest.raises(ValueError, match="image"):
        Image(source)


@pytest.mark.parametrize("source", [None, 1, ["https://example.test"]])
def test_what_is_neither_a_url_nor_bytes_is_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="URL"):
        Image(source)


def test_a_picture_is_kept_by_the_wire_form_with_its_message() -> None:
    message = Message("user", "What is this?", with_images({"a": 1}, [Image(PNG), Image(URL)]))
    (again,) = wire.load(wire.dump([message]))
    assert isinstance(again, Message)
    assert again == message
    assert images_of(again) == [Image(PNG), Image(URL)]


def test_a_picture_that_cannot_be_read_is_left_out() -> None:
    assert images_of(Message("user", "x", {"images": [URL, "nothing", 1]})) == [Image(URL)]


CHAT = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
    {"type": "image_url", "image_url": {"url": URL}},
]
WANTED: list[tuple[Callable[..., Any], Any]] = [
    (ChatAgent, CHAT),
    (MistralAgent, CHAT),
    (
        OpenaiAgent,
        [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
            {"type": "input_image", "image_url": URL},
        ],
    ),
    (
        AnthropicAgent,
        [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
            {"type": "image", "source": {"type": "url", "url": URL}},
            {"type": "text", "text": "What is this?"},
        ],
    ),
    (
        GeminiAgent,
        [
            {"inlineData": {"mimeType": "image/png", "data": DATA}},
            {"fileData": {"fileUri": URL}},
            {"text": "What is this?"},
        ],
    ),
]


def ask(backend: Backend, maker: Callable[..., Any], **options: Any) -> tuple[Any, ScriptedProvider]:
    server = ScriptedProvider([say("A cat.")])

    async def scenario() -> Any:
        retry = Retry(max_retries=0)
        more: dict[str, Any] = {
            "base_url": "http://a.test/v1",
            "api_key": "k",
            "retry": retry,
            "raise_on_failure": False,
            **options,
        }
        async with server, maker(connect=server.connect, **more) as agent:
            agent.add_user_message("What is this?", images=[Image(PNG), Image(URL)])
            return await agent.answer().wait()

    return run_virtual(backend, scenario), server


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("maker", "content"), WANTED)
def test_each_api_gets_a_picture_in_its_own_form(backend: Backend, maker: Callable[..., Any], content: Any) -> None:
    result, server = ask(backend, maker)
    assert result.text == "A cat."
    body = server.requests[0].body
    (message,) = body.get("messages") or body.get("input") or body["contents"]
    assert message.get("content", message.get("parts")) == content


def test_pictures_of_neighbours_stand_in_the_one_message_that_a_template_wants() -> None:
    server = ScriptedProvider([say("A cat.")])

    async def scenario() -> None:
        agent = ChatAgent(base_url="http://a.test/v1", connect=server.connect, dialect="template")
        async with server, agent:
            agent.add_user_message("Look.", images=[Image(URL)])
            agent.add_user_message("What is this?")
            await agent.answer().wait()

    run_virtual("asyncio", scenario)
    (message,) = server.requests[0].body["messages"]
    assert message["content"] == [{"type": "text", "text": "Look.\nWhat is this?"}, CHAT[2]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_server_that_is_known_to_be_blind_is_not_asked(backend: Backend) -> None:
    result, server = ask(backend, ChatAgent, quirks=ChatQuirks(images=False))
    assert (result.status, result.error.kind, result.error.provider) == ("failed", "bad_request", "chat")
    assert server.requests == []


def test_an_agent_without_eyes_says_so_at_once() -> None:
    with pytest.raises(TypeError, match="EchoAgent takes no images"):
        EchoAgent().add_user_message("Look.", images=[Image(URL)])
    with pytest.raises(TypeError, match="list of Image"):
        ChatAgent(api_key="k").add_user_message("Look.", images=[URL])  # type: ignore[list-item]  # the mistake


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_child_that_cannot_see_is_left_for_one_that_can(backend: Backend) -> None:
    server = ScriptedProvider({"b.test": [say("A cat.")]})

    def child(host: str, quirks: ChatQuirks) -> ChatAgent:
        return ChatAgent(base_url=f"http://{host}/v1", connect=server.connect, quirks=quirks)

    async def scenario() -> Any:
        blind = ChatQuirks(images=False)
        factories = [lambda: child("a.test", blind), lambda: child("b.test", ChatQuirks())]
        async with server, FallbackAgent(factories) as agent:
            agent.add_user_message("What is this?", images=[Image(URL)])
            return await agent.answer().wait()

    assert run_virtual(backend, scenario).text == "A cat."
