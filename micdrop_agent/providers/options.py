"""The options of agents that ask a model server, each said once; see ``micdrop_agent._core.options``.

    Agent ◀── ModelAgent ◀── HttpAgent ◀── ChatAgent, OpenaiAgent, AnthropicAgent
    AgentOptions ◀ ModelOptions ◀ HttpOptions ◀ ChatOptions, OpenaiOptions, AnthropicOptions

Those of a single agent are beside it, so that an agent loads no other's. The keywords beside each class are what editors and type checkers complete; a test keeps the two the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import attrs

from micdrop_agent._core.options import flag
from micdrop_agent.model.options import ModelKeywords, ModelOptions
from micdrop_agent.options import check_choice, check_flag, check_text, check_type, validated
from micdrop_agent.providers.quirks import ChatQuirks
from micdrop_agent.providers.settings import check_settings
from micdrop_agent.transport.choose import check_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from micdrop_agent._core.options import Attribute
    from micdrop_agent.transport.base import ConnectFn

__all__ = [
    "ChatDialectName",
    "ChatKeywords",
    "ChatOptions",
    "HttpKeywords",
    "HttpOptions",
    "flag",
]

ChatDialectName: TypeAlias = Literal["openai", "template"]
Think: TypeAlias = bool | Literal["inside"]


_filled: Final = validated(check_text, empty=False, none=True)


def _client(_: object, __: Attribute, value: object) -> None:
    check_client(value)


def _think(_: object, attribute: Attribute, value: object) -> None:
    if value != "inside":
        check_flag(attribute.name, value)


@attrs.frozen(kw_only=True, eq=False)
class HttpOptions(ModelOptions):
    """The options of an agent that asks a model server, beside those of every model agent."""

    model: str | None = attrs.field(default=None, validator=_filled)
    """Name of the model; the provider's usual one by default."""

    api_key: str | None = attrs.field(default=None, repr=False)
    """The key. Defaults to the provider's environment variable, which is read only when the provider itself is
    asked: no other server gets it, and none needs a key. Never logged or shown."""

    client: Any = attrs.field(default=None, repr=False, validator=_client)
    """A client of your own in place of ours: an ``openai.AsyncOpenAI`` or ``AsyncAzureOpenAI`` (which also brings
    key and URL), an ``httpx2.AsyncClient`` or an ``httpx.AsyncClient``. It may be shared by many agents, and is
    never closed by them."""

    base_url: str | None = attrs.field(default=None, validator=_filled)
    """URL of the server, up to and including its version (``…/v1``). Defaults to the URL that ``client`` was made
    for, then to the provider itself."""

    settings: Mapping[str, Any] | None = attrs.field(default=None, converter=check_settings)
    """Members merged last into the body of each request, as the provider's API names them. A ``tool_choice`` that
    forces a call holds for the first request of an answer; ``tools`` of the server's own stand beside the agent's
    tools. What the agent makes itself (``stream``, ``messages``, …) is refused."""

    connect: ConnectFn | None = None
    """Opens connections in place of TCP; for tests."""


class HttpKeywords(ModelKeywords, total=False):
    """The keywords of an ``HttpAgent``, and of subclasses that pass them on; see ``HttpOptions``."""

    model: str | None
    api_key: str | None
    client: Any
    base_url: str | None
    settings: Mapping[str, Any] | None
    connect: ConnectFn | None


@attrs.frozen(kw_only=True, eq=False)
class ChatOptions(HttpOptions):
    """The options of a ``ChatAgent``."""

    dialect: ChatDialectName = attrs.field(
        default="openai", validator=validated(check_choice, known=get_args(ChatDialectName))
    )
    """``"openai"`` sends the conversation as it is; ``"template"`` brings it into the form that chat templates of open
    models accept (vLLM, llama.cpp): one system message in front, user and assistant in turns."""

    think: Think = attrs.field(default=True, validator=_think)
    """Keep what the model writes between ``<think>`` and ``</think>`` from being spoken; ``"inside"`` for a model
    whose text begins inside its thoughts, so that only the end is marked."""

    include_usage: bool = attrs.field(default=True, validator=flag)
    """Ask the server to count tokens (``stream_options``); switch it off for an old server that refuses it."""

    quirks: ChatQuirks | None = attrs.field(default=None, validator=validated(check_type, kind=ChatQuirks, none=True))
    """What this server wants or sends that others do not; found out by default."""


class ChatKeywords(HttpKeywords, total=False):
    """The keywords of a ``ChatAgent``; see ``ChatOptions``."""

    dialect: ChatDialectName
    think: Think
    include_usage: bool
    quirks: ChatQuirks | None
