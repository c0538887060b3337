"""The arguments of the command line, checked as far as that needs no agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from micdrop_agent.cli._spec import AgentSpec

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
    "parse",
]

Backend = Literal["asyncio", "trio"]
SYSTEM_PROMPT: Final = "You are a helpful voice assistant. Answer in one or two short sentences."


class UsageError(Exception):
    """Arguments that do not fit together (exit code 2)."""


@attrs.frozen(kw_only=True)
class ChatArguments:
    """The arguments of ``micdrop-agent chat``; each attribute is the option of that name."""

    agent: AgentSpec
    fallback: tuple[AgentSpec, ...] = ()
    first_chunk_timeout: float | None = None
    system_prompt: str | None = None
    backend: Backend = "asyncio"
    say: tuple[str, ...] = ()
    json: bool = False
    transcript: Path | None = None
    resume: Path | None = None
    store: Path | None = None
    call: str | None = None
    trace: Path | None = None


@attrs.frozen(kw_only=True)
class DemoArguments:
    """The arguments of ``micdrop-agent demo failover``."""

    fault: str
    timeout: float
    backend: Backend = "asyncio"
    trace: Path | None = None


@attrs.frozen(kw_only=True)
class ShowArguments:
    """The arguments of ``micdrop-agent show``."""

    store: Path
    call: str | None = None
    json: bool = False
    as_test: Path | None = None


@attrs.frozen(kw_only=True)
class DoctorArguments:
    """The arguments of ``micdrop-agent doctor``."""

    agents: tuple[AgentSpec, ...] = ()
    timeout: float
    backend: Backend = "asyncio"


@attrs.frozen(kw_only=True)
class CompletionArguments:
    """The arguments of ``micdrop-agent completion``."""

    shell: Literal["bash", "zsh", "fish"]


Arguments: TypeAlias = ChatArguments | DemoArguments | ShowArguments | DoctorArguments | CompletionArguments


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
            found["agents"] = tuple(found["agents"])
            for agent in found["agents"]:
                _check(agent)
            return DoctorArguments(**found)
        case _:
            return CompletionArguments(**found)


def _chat(found: dict[str, Any]) -> ChatArguments:
    found["agent"] = _merged(found["agent"], found.pop("model"), found.pop("base_url"), found.pop("api_key_env"))
    found["fallback"] = tuple(found["fallback"])
    # Bytes of the command line that are not text came in as lone surrogates, which no JSON can carry.
    found["say"] = tuple(text.encode(errors="replace").decode() for text in found["say"])
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
