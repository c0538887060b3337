"""What the doctor finds without asking anybody: parts that are installed, keys that are set."""

from __future__ import annotations

import importlib.metadata
import os
from typing import TYPE_CHECKING, Final, Literal

import attrs

from micdrop_agent._extras import install_command, installed
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Finding", "has_local", "keys", "parts"]


@attrs.frozen
class Finding:
    """One line of the report.

    Args:
        state: ``missing`` is not a fault: nobody needs every part.
        text: What was found.
        mend: How to mend it, a line each; commands can be pasted.
    """

    state: Literal["ok", "missing", "failed"]
    text: str
    mend: tuple[str, ...] = ()


_NEEDED: Final = ("anyio", "attrs", "cattrs", "blinker", "httptools", "httpx2")
_EXTRAS: Final = (
    ("trio", "Trio, the other event loop", "trio"),
    ("openai", "openai, only to pass in an AsyncOpenAI client of your own", "openai"),
    ("prompt_toolkit", "line editing and history for the command chat", "chat"),
    ("shtab", "the scripts of the command completion", "completion"),
    ("sentencex", "sentences for a voice", "speech"),
    ("starlette", "voice calls over a WebSocket", "call"),
    ("opentelemetry", "OpenTelemetry, for spans and metrics", "otel"),
)
_DISTRIBUTIONS: Final = {"opentelemetry": "opentelemetry-api"}


def parts() -> Iterator[Finding]:
    """The libraries that are needed, the extras, and the parts of the local model."""
    missing = [name for name in _NEEDED if not _installed(name)]
    if missing:
        yield Finding("failed", f"missing: {', '.join(missing)}", (f"pip install {' '.join(missing)}",))
    else:
        yield Finding("ok", "the core: " + ", ".join(f"{name} {_version(name)}" for name in _NEEDED))
    for module, words, extra in _EXTRAS:
        if _installed(module):
            yield Finding("ok", f"{words} ({_version(module)})")
        else:
            yield Finding("missing", f"not installed: {words}", (install_command(extra),))
    yield from _local()


def _local() -> Iterator[Finding]:
    from micdrop_agent.providers.llama import MODEL_INSTALL, default_model

    if _installed("xllamacpp"):
        yield Finding("ok", f"llama.cpp in the process, for the agent local (xllamacpp {_version('xllamacpp')})")
    else:
        yield Finding(
            "missing", "not installed: llama.cpp in the process, for the agent local", (install_command("local"),)
        )
    try:
        yield Finding("ok", f"the default local model ({default_model().stem})")
    except MicdropError:
        yield Finding("missing", "not installed: the default local model", (MODEL_INSTALL,))


def has_local() -> bool:
    """Whether the local agent has all its parts."""
    return all(finding.state == "ok" for finding in _local())


def keys(variables: Sequence[str]) -> Iterator[Finding]:
    """Which API keys are set; what they are stays in the environment."""
    for variable in variables:
        if os.environ.get(variable, "").strip():
            yield Finding("ok", f"{variable} is set")
        else:
            yield Finding("missing", f"{variable} is not set", (f"export {variable}=…",))


def _installed(module: str) -> bool:
    return installed("attr" if module == "attrs" else module)


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(_DISTRIBUTIONS.get(module, module))
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"
