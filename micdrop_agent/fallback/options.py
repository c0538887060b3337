"""The options of a ``FallbackAgent``, each said once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import attrs

from micdrop_agent._core.options import SharedKeywords, SharedOptions, flag
from micdrop_agent.fallback.health import HealthRegistry
from micdrop_agent.options import check_choice, check_seconds, check_text, check_type, validated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent._core.options import Attribute

__all__ = ["AfterPartial", "FallbackKeywords", "FallbackOptions", "Prefer"]

AfterPartial: TypeAlias = Literal["continue", "restart", "stop"]
Prefer: TypeAlias = Literal["current", "first"]


_seconds: Final = validated(check_seconds, zero=False, none=True)


def _hedge(_: object, attribute: Attribute, value: object) -> None:
    if value != "p95":
        check_seconds(attribute.name, value, zero=False, none=True)


@attrs.frozen(kw_only=True, eq=False)
class FallbackOptions(SharedOptions):
    """The options of a ``FallbackAgent``, beside its factories."""

    first_chunk_timeout: float | None = attrs.field(default=5.0, validator=_seconds)
    """Seconds that one child may take to its first useful output, its own retries included; then it counts as
    failed. ``None``: the children's own clocks."""

    give_up_after: float | None = attrs.field(default=None, validator=_seconds)
    """Seconds for the whole answer to its first useful output; ``None``: none."""

    hedge_after: float | Literal["p95"] | None = attrs.field(default=None, validator=_hedge)
    """Ask the next healthy child too when there is no output after so many seconds, and take whichever comes first;
    ``"p95"``: after the 95th percentile of that child's own history. Only before any output, within the
    registry's budget."""

    after_partial: AfterPartial = attrs.field(
        default="continue", validator=validated(check_choice, known=get_args(AfterPartial))
    )
    """When a child fails in mid-answer: ``"continue"``: the next one goes on where it stopped; ``"restart"``: it
    starts again, and ``AgentSwitched.restarted`` informs the host; ``"stop"``: the answer fails and the next child
    has the next turn."""

    health: HealthRegistry | None = attrs.field(
        default=None, validator=validated(check_type, kind=HealthRegistry, none=True)
    )
    """Which children are available; share one between agents. ``None``: one of its own."""

    prefer: Prefer = attrs.field(default="current", validator=validated(check_choice, known=get_args(Prefer)))
    """``"current"``: the child that answered stays; ``"first"``: go back to the first one as soon as it is healthy
    again."""

    prebuild: bool = attrs.field(default=False, validator=flag)
    """Make all children when the agent is opened, so that a switch does not wait."""

    give_up_text: str | None = attrs.field(default=None, validator=validated(check_text, none=True))
    """Said, and stored, when every child failed and nothing was heard yet."""

    names: Sequence[str] | None = None
    """Names of the children in events and in the registry; made from their classes and models by default."""


class FallbackKeywords(SharedKeywords, total=False):
    """The keywords of ``FallbackAgent(factories, …)``; see ``FallbackOptions``."""

    first_chunk_timeout: float | None
    give_up_after: float | None
    hedge_after: float | Literal["p95"] | None
    after_partial: AfterPartial
    health: HealthRegistry | None
    prefer: Prefer
    prebuild: bool
    give_up_text: str | None
    names: Sequence[str] | None
