"""The options of an agent, each said once: name, type, default, check, and what it is for.

    Agent(system_prompt=…) ──▶ read_options(AgentOptions, …) ──▶ core.options

The keywords beside the class are what editors and type checkers complete; a test keeps the two the same.
Agents with more options extend both. The command line and the reference read the class.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import attrs

from micdrop_agent.options import (
    ExtractJson,
    ExtractTag,
    check_count,
    check_flag,
    check_function,
    check_text,
    validated,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeAlias

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.options import TurnContext
    from micdrop_agent.speech import Speech
    from micdrop_agent.tools import Tool

    Verdict: TypeAlias = bool | str | TurnContext | None
    BeforeAnswer: TypeAlias = Callable[[Agent, Turn], "Verdict | Awaitable[Verdict]"]
    Attribute: TypeAlias = attrs.Attribute[Any]

__all__ = ["AgentKeywords", "AgentOptions", "SharedKeywords", "SharedOptions", "read_options", "shared"]

O_ = TypeVar("O_", bound="SharedOptions")


text: Final = validated(check_text)
flag: Final = validated(check_flag)
function: Final = validated(check_function)


def extraction(_: object, attribute: Attribute, value: object) -> None:
    """Refuse extraction options of another kind."""
    if value is not None and not isinstance(value, ExtractJson | ExtractTag):
        raise TypeError(f"{attribute.name} must be an ExtractJson or an ExtractTag, not {value!r}")


def several(_: object, attribute: Attribute, value: object) -> None:
    """Refuse what is not a list of tools, a single tool for example."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{attribute.name} must be a list of tools or functions, not {value!r}")


def speaking(_: object, attribute: Attribute, value: object) -> None:
    """Refuse what is not a ``Speech``; nothing of it is loaded where it is left out."""
    if value is not None:
        from micdrop_agent.speech import Speech

        if not isinstance(value, Speech):
            raise TypeError(f"{attribute.name} must be a Speech(...), not {value!r}")


@attrs.frozen(kw_only=True, eq=False)
class SharedOptions:
    """The options that a ``FallbackAgent`` has too."""

    tools: Iterable[Tool | Callable[..., Any]] = attrs.field(default=(), validator=several)
    """Tools, or functions that ``@tool`` can wrap."""

    on_before_answer: BeforeAnswer | None = attrs.field(default=None, validator=function)
    """``hook(agent, turn)``, sync or async, before each answer. ``True`` skips the generation, a string is said
    and stored in its place, a ``TurnContext`` is in the requests of that answer."""

    deps: Any = None
    """An object of the application's own, for tools: a parameter annotated with its type, or ``Deps[…]``, gets it, and
    ``agent.deps`` is it."""

    record_interrupted: bool = attrs.field(default=True, validator=flag)
    """Store the heard part of a cut answer, marked ``interrupted``."""

    raise_on_failure: bool = attrs.field(default=True, validator=flag)
    """Raise the error of a failed answer from its iteration. ``False``: the iteration just ends, as in Micdrop."""

    buffer_size: int | None = attrs.field(default=None, validator=validated(check_count, least=0, none=True))
    """Chunks that may wait for the consumer before the producer waits too; ``None`` means no limit (the text of an
    answer is bounded by the model)."""

    speech: Speech | None = attrs.field(default=None, validator=speaking)
    """Hand each answer to its consumer in sentences for a voice, without Markdown; the original is stored. ``heard``
    counts characters of what the consumer received."""

    call_id: str | None = attrs.field(default=None, validator=validated(check_text, empty=False, none=True))
    """Name of the call, which each line of its log and each span has; ``attach()`` gives its own."""

    max_guesses: int = attrs.field(default=3, validator=validated(check_count, least=0))
    """Guesses (``agent.speculate()``) between two answers; more are not begun."""

    pause_buffer: int = attrs.field(default=20_000, validator=validated(check_count, least=0))
    """Characters that a paused answer (``cancel(pause=True)``) may have waiting; beyond that it is cancelled. The default
    is about twenty minutes of speech."""

    max_detached: int = attrs.field(default=4, validator=validated(check_count, least=0))
    """Tools with ``on_cancel="detach"`` that may go on after their answer was cut; one more is cancelled with it."""


@attrs.frozen(kw_only=True, eq=False)
class AgentOptions(SharedOptions):
    """The options of every agent.

    Raises:
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range; the message names it.

    Source: Micdrop page "Agent (LLM)", ``AgentOptions``.
    """

    system_prompt: str = attrs.field(default="", validator=text)
    """The first message of the conversation."""

    auto_end_call: bool | str = False
    """Give the model a tool that ends the call; a string replaces its prompt."""

    auto_semantic_turn: bool | str = False
    """Give it a tool to wait when the caller has not finished; a string replaces its prompt."""

    auto_ignore_user_noise: bool | str = False
    """Give it a tool to drop a meaningless user message; a string replaces its prompt."""

    extract: ExtractJson | ExtractTag | None = attrs.field(default=None, validator=extraction)
    """Take a value from the end of each answer; it is not spoken."""

    parallel_tools: bool = attrs.field(default=True, validator=flag)
    """Run the tools of one response at the same time."""


class SharedKeywords(TypedDict, total=False):
    """The options that a ``FallbackAgent`` has too; see ``AgentOptions``."""

    tools: Iterable[Tool | Callable[..., Any]]
    on_before_answer: BeforeAnswer | None
    deps: Any
    record_interrupted: bool
    raise_on_failure: bool
    buffer_size: int | None
    speech: Speech | None
    call_id: str | None
    max_guesses: int
    pause_buffer: int
    max_detached: int


class AgentKeywords(SharedKeywords, total=False):
    """The keywords of ``Agent(…)``, and of subclasses that pass them on; see ``AgentOptions``."""

    system_prompt: str
    auto_end_call: bool | str
    auto_semantic_turn: bool | str
    auto_ignore_user_noise: bool | str
    extract: ExtractJson | ExtractTag | None
    parallel_tools: bool


def read_options(kind: type[O_], keywords: Mapping[str, Any], owner: object) -> O_:
    """Check ``keywords`` and make the options of ``owner`` of them.

    Raises:
        TypeError: There is no such option, or one has the wrong type.
        ValueError: One is out of range.
    """
    known = attrs.fields_dict(kind)
    for name in keywords:
        if name not in known:
            raise TypeError(f"{type(owner).__name__}() has no option {name!r}; {_meant(name, known, owner)}")
    return kind(**keywords)


def shared(options: SharedOptions) -> dict[str, Any]:
    """Those of ``options`` that every agent has."""
    return {name: getattr(options, name) for name in attrs.fields_dict(SharedOptions)}


_ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    dict.fromkeys(("instructions", "prompt", "system", "system_message"), ("system_prompt", "system_prompt=…"))
    | dict.fromkeys(("max_retries", "max_retry", "retries"), ("retry", "retry=Retry(max_retries=…)"))
    | dict.fromkeys(("timeout", "request_timeout"), ("timeouts", "timeouts=Timeouts(total=…)"))
    | dict.fromkeys(("functions", "function_tools"), ("tools", "tools=[…]"))
    | dict.fromkeys(("url", "endpoint", "host", "api_base"), ("base_url", "base_url=…"))
    | {"llm": ("model", "model=…"), "model_name": ("model", "model=…")}
)
"""What other libraries call our options: which of ours it is, and how that is written."""

_SERVERS: Final = frozenset({"max_tokens", "max_output_tokens", "max_completion_tokens", "reasoning", "stop", "n"})
"""Names of the servers' APIs that look like options of ours."""


def _meant(name: str, known: Mapping[str, object], owner: object) -> str:
    """What to write in place of an option that there is not."""
    from difflib import get_close_matches

    settings = hasattr(type(owner), "settings")
    ours, written = _ELSEWHERE.get(name, ("", ""))
    if ours in known:
        return f"write {written}"
    if not (settings and name in _SERVERS) and (near := get_close_matches(name, known, 1)):
        return f"did you mean {near[0]!r}?"
    there = f"it has {', '.join(known)}"
    if settings:
        return f"what the server reads goes into settings={{{name!r}: …}}; {there}"
    if "first_chunk_timeout" in known:  # a FallbackAgent
        return f"its children have theirs, as in factories=[lambda: OpenaiAgent({ours or name}=…)]; {there}"
    return there
