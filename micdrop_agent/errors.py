"""The library's errors: one small tree, facts as attributes.

    MicdropError
    ├── ProviderError          a model's server failed, and how
    │   └── MaxStepsError      the model never stopped calling tools
    ├── AllAgentsFailedError   no child of a FallbackAgent could answer
    └── ToolError              what a tool has to say to the model
        └── ToolInputError     arguments that a tool cannot use

Callers branch on attributes (``kind``, ``status``, ``retryable``), never on the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AllAgentsFailedError",
    "Attempt",
    "FailureKind",
    "MaxStepsError",
    "MicdropError",
    "ProviderError",
    "ToolError",
    "ToolInputError",
]

FailureKind = Literal[
    "bad_request",
    "context_length",
    "content_filter",
    "auth",
    "not_found",
    "quota",
    "rate_limit",
    "timeout",
    "overloaded",
    "server",
    "connection",
    "truncated",
    "empty",
    "max_steps",
    "protocol",
]

RETRYABLE_KINDS: Final[frozenset[str]] = frozenset({"overloaded", "server", "connection", "empty"})
"""Kinds for which the same request may work a moment later (docs: errors)."""


def describe_error(error: BaseException) -> str:
    """The text of ``error``, or its type: foreign errors have none, or fail when they are asked for it."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - foreign code: the error itself is what counts
        return type(error).__name__


class MicdropError(Exception):
    """Base of every error that this library raises on purpose. All of them can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with its text alone; here the facts are keyword arguments.
        return _made_again, (type(self), self.args), dict(self.__dict__)


def _made_again(cls: type[MicdropError], args: tuple[Any, ...]) -> MicdropError:
    """An error as it was, without its ``__init__``; what it knows is set afterwards."""
    error = cls.__new__(cls)
    error.args = args
    return error


class ProviderError(MicdropError):
    """A model's server refused, failed, fell silent, or was cut off.

    Args:
        message: What happened, where, and what to do, for people.
        kind: What sort of failure it is; decides on retry and on rotation.
        status: HTTP status, if the server sent one.
        code: The provider's own error code, if it gave one.
        retry_after: Seconds that the provider asked us to wait.
        provider: Name of the provider that failed.
        text_sent: Whether text of this answer had already been written.
        retryable: Whether the same request may work later; derived from ``kind``
            when left out.
        request_id: The provider's id of the request, for its support.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        provider: str | None = None,
        text_sent: bool = False,
        retryable: bool | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.provider = provider
        self.text_sent = text_sent
        self.retryable: bool = kind in RETRYABLE_KINDS if retryable is None else retryable
        self.request_id = request_id


class MaxStepsError(ProviderError):
    """The model called tools at every step and never said anything (``max_steps``)."""

    def __init__(self, max_steps: int, *, provider: str | None = None) -> None:
        super().__init__(
            f"the model asked for tools in all of its {max_steps} steps and then said nothing; "
            "check what the tools return, or raise max_steps",
            kind="max_steps",
            provider=provider,
        )
        self.max_steps = max_steps


@attrs.frozen
class Attempt:
    """One child that a ``FallbackAgent`` tried, and why it did not answer."""

    agent: str
    """Name of the child, as in ``AgentSwitched`` and ``HealthRegistry.snapshot()``."""

    error: Exception
    """What its ``generate_answer`` (or its factory) raised."""


class AllAgentsFailedError(MicdropError):
    """Every child of a ``FallbackAgent`` failed within one answer.

    Attributes:
        attempts: The children in the order in which they were tried, with their errors.
    """

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        causes = "; ".join(f"{attempt.agent}: {describe_error(attempt.error)}" for attempt in attempts)
        super().__init__(f"all {len(attempts)} agents failed ({causes})")
        self.attempts: tuple[Attempt, ...] = tuple(attempts)


class ToolError(MicdropError):
    """What a tool wants the model to read, in place of an output: ``raise ToolError("no table is free")``.

    Its text becomes the result of the call. Every other exception is logged and stays at home: the model
    reads that the tool failed, since the text of a program's error may hold secrets, and may be spoken.
    """


class ToolInputError(ToolError):
    """Arguments that a tool cannot use; the text says what is wrong with them, for the model to correct."""
