"""The arguments of the command line, each said once, and checked as far as that needs no agent.

ChatArguments, … ── add_arguments() ──▶ argparse ── parse() ──▶ ChatArguments(…)
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from micdrop_agent.cli._faults import FAULTS
from micdrop_agent.cli._spec import AgentSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "SYSTEM_PROMPT",
    "Arguments",
    "Backend",
    "ChatArguments",
    "CompletionArguments",
    "DemoArguments",
    "DoctorArguments",
    "ShowArguments",
    "UsageError",
    "add_arguments",
    "parse",
]

Backend = Literal["asyncio", "trio"]
SYSTEM_PROMPT: Final = "You are a helpful voice assistant. Answer in one or two short sentences."
_WHO, _SAID, _KEPT = "who answers", "what is said", "what is kept"


class UsageError(Exception):
    """Arguments that do not fit together (exit code 2)."""


def _option(words: str, *, default: Any = None, group: str | None = None, place: bool = False, **how: Any) -> Any:
    """An option of a command, or with ``place`` what stands at a place of its own; ``how`` is for argparse."""
    several = how.get("action") == "append" or how.get("nargs") == "*"
    return attrs.field(
        default=() if several else default,
        converter=tuple[Any, ...] if several else None,
        metadata={"group": group, "place": place, "how": {"help": words, **how}},
    )


def _checked(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """``convert`` with its own words in the message of a refusal."""

    def converted(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return converted


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"{text!r} is not a number of seconds above 0")
    return seconds


_AGENT: Final[dict[str, Any]] = {"metavar": "AGENT", "type": _checked(AgentSpec.parse)}
_SECONDS: Final[dict[str, Any]] = {"metavar": "S", "type": _checked(_seconds)}
_FILE: Final[dict[str, Any]] = {"metavar": "FILE", "type": Path}
_LOOP: Final[dict[str, Any]] = {"default": "asyncio", "choices": ("asyncio", "trio"), "metavar": "LOOP"}


@attrs.frozen(kw_only=True)
class ChatArguments:
    """The arguments of ``micdrop-agent chat``."""

    agent: AgentSpec = _option("who answers (default: local)", group=_WHO, default="local", **_AGENT)
    fallback: tuple[AgentSpec, ...] = _option(
        "who goes on when that one fails; may be given several times, in order", group=_WHO, action="append", **_AGENT
    )
    first_chunk_timeout: float | None = _option("go on after so many silent seconds", group=_WHO, **_SECONDS)
    model: str | None = _option("the model of --agent, if it is not named there", group=_WHO, metavar="MODEL")
    base_url: str | None = _option("the server of --agent, likewise", group=_WHO, metavar="URL")
    api_key_env: str | None = _option(
        "the variable that holds the API key of --agent, likewise", group=_WHO, metavar="VARIABLE"
    )
    system_prompt: str | None = _option(
        "first message of the conversation (default: short spoken answers)", group=_WHO, metavar="TEXT"
    )
    say: tuple[str, ...] = _option(
        "say this and leave; may be given several times", group=_SAID, metavar="TEXT", action="append"
    )
    json: bool = _option(
        "print the conversation as wire JSON at the end, and the text to stderr",
        group=_SAID,
        default=False,
        action="store_true",
    )
    store: Path | None = _option(
        "keep the call in a SQLite file while it runs; it survives a crash", group=_KEPT, **_FILE
    )
    call: str | None = _option(
        "the call in that store; goes on if it is there (default: a new one)", group=_KEPT, metavar="ID"
    )
    transcript: Path | None = _option("save the conversation as wire JSON after each turn", group=_KEPT, **_FILE)
    resume: Path | None = _option("go on with a saved conversation", group=_KEPT, **_FILE)
    trace: Path | None = _option("write a web page that shows what happened inside each answer", group=_KEPT, **_FILE)
    backend: Backend = _option("asyncio (default) or trio", **_LOOP)


@attrs.frozen(kw_only=True)
class DemoArguments:
    """The arguments of ``micdrop-agent demo failover``."""

    fault: str = _option(
        "what the first server does (default: cut)", default="cut", choices=tuple(FAULTS), metavar="FAULT"
    )
    timeout: float = _option("silent seconds before the switch (default: 1)", default=1.0, **_SECONDS)
    trace: Path | None = _option("also write a web page that shows what happened inside the answer", **_FILE)
    backend: Backend = _option("asyncio (default) or trio", **_LOOP)


@attrs.frozen(kw_only=True)
class ShowArguments:
    """The arguments of ``micdrop-agent show``."""

    store: Path = _option("a store, as chat --store or SqliteStore makes it", place=True, **_FILE)
    call: str | None = _option("a call in it", place=True, metavar="ID", nargs="?")
    json: bool = _option("as JSON", default=False, action="store_true")
    as_test: Path | None = _option("write that call as a test for pytest (a new file)", metavar="TEST", type=Path)


@attrs.frozen(kw_only=True)
class DoctorArguments:
    """The arguments of ``micdrop-agent doctor``."""

    agents: tuple[AgentSpec, ...] = _option("ask these (default: all that are set up)", place=True, nargs="*", **_AGENT)
    timeout: float = _option("seconds to the first chunk (default: 10)", default=10.0, **_SECONDS)
    backend: Backend = _option("asyncio (default) or trio", **_LOOP)


@attrs.frozen(kw_only=True)
class CompletionArguments:
    """The arguments of ``micdrop-agent completion``."""

    shell: Literal["bash", "zsh", "fish"] = _option("which shell", place=True, choices=("bash", "zsh", "fish"))


Arguments: TypeAlias = ChatArguments | DemoArguments | ShowArguments | DoctorArguments | CompletionArguments


def add_arguments(parser: argparse.ArgumentParser, kind: type[Arguments]) -> None:
    """Add the options of ``kind`` to the command of ``parser``."""
    groups: dict[str | None, Any] = {None: parser}
    for field in attrs.fields(kind):
        group, how = field.metadata["group"], dict(field.metadata["how"])
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        if not field.metadata["place"]:
            how["default"] = list(field.default) if how.get("action") == "append" else field.default
        name = field.name if field.metadata["place"] else f"--{field.name.replace('_', '-')}"
        groups[group].add_argument(name, **how)


def parse(arguments: Sequence[str] | None) -> Arguments:
    """The options in ``arguments`` (``None``: those of the process).

    Raises:
        SystemExit: They are wrong, or ask for help or the version; a message has been printed.
    """
    from micdrop_agent.cli._parser import make_parser

    found = vars(make_parser().parse_args(arguments))
    command, parser = found.pop("command"), found.pop("parser")
    try:
        return _made(command, found)
    except UsageError as error:
        used: argparse.ArgumentParser = parser
        used.error(str(error))


def _made(command: str, found: dict[str, Any]) -> Arguments:
    match command:
        case "chat":
            return _chat(found)
        case "demo":
            found.pop("demo")
            return DemoArguments(**found)
        case "show":
            return _show(found)
        case "doctor":
            asked = DoctorArguments(**found)
            for agent in asked.agents:
                _check(agent)
            return asked
        case _:
            return CompletionArguments(**found)


def _chat(found: dict[str, Any]) -> ChatArguments:
    found["agent"] = _merged(found["agent"], found["model"], found["base_url"], found["api_key_env"])
    # Bytes of the command line that are not text came in as lone surrogates, which no JSON can carry.
    found["say"] = [text.encode(errors="replace").decode() for text in found["say"]]
    options = ChatArguments(**found)
    for agent in (options.agent, *options.fallback):
        _check(agent)
    problem = _problem(options)
    if problem is not None:
        raise UsageError(problem)
    return options


def _show(found: dict[str, Any]) -> ShowArguments:
    options = ShowArguments(**found)
    if options.as_test is not None and options.call is None:
        raise UsageError("--as-test writes one call as a test: its ID is missing")
    if options.as_test is not None and options.json:
        raise UsageError("--json prints a call, --as-test writes a test; choose one of them")
    return options


def _merged(agent: AgentSpec, model: str | None, base_url: str | None, key_variable: str | None) -> AgentSpec:
    """``agent`` with what options of their own say about it."""
    for given, has, name in (
        (model, agent.model, "--model"),
        (base_url, agent.base_url, "--base-url"),
        (key_variable, agent.key_variable, "--api-key-env"),
    ):
        if given is not None and has is not None:
            raise UsageError(f"{name} says again what --agent {agent.label} says already")
    return attrs.evolve(
        agent,
        model=agent.model if model is None else model,
        base_url=agent.base_url if base_url is None else base_url,
        key_variable=agent.key_variable if key_variable is None else key_variable,
    )


def _check(agent: AgentSpec) -> None:
    problem = agent.problem()
    if problem is not None:
        raise UsageError(problem)


def _problem(options: ChatArguments) -> str | None:
    """What does not fit together, if anything."""
    if any(not text.strip() for text in options.say):
        return "--say needs a text"
    if options.call is not None and options.store is None:
        return "--call names a call in a store: --store FILE is missing"
    if options.call is not None and not (options.call and options.call.isprintable()):
        return "--call must be a printable text and not empty"
    if options.store is not None and options.resume is not None:
        return "--resume reads a conversation from a file, --store from a database; choose one of them"
    if options.first_chunk_timeout is not None and not options.fallback:
        return "--first-chunk-timeout says when to go on to the next agent: --fallback AGENT is missing"
    return None
