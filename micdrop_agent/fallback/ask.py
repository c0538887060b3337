"""One typed answer without speech, from the first child that gives one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent.errors import AllAgentsFailedError, Attempt, ProviderError
from micdrop_agent.fallback.rotation import Rotation

if TYPE_CHECKING:
    from micdrop_agent.fallback.children import FallbackCore

__all__ = ["ask"]


async def ask(core: FallbackCore, cls: type, text: str, retries: int) -> Any:
    """Ask the children one after the other, the healthy ones first.

    Raises:
        AllAgentsFailedError: None gave an answer that fits.
        TypeError: None of them asks a model.
    """
    order = Rotation(core.slots, core.health, core.active)
    attempts: list[Attempt] = []
    while order:
        slot = order.take()
        try:
            agent: Any = core.built(slot).agent
        except Exception as error:  # noqa: BLE001 - foreign code: a factory; the next child is asked
            core.health.failed(slot.key, error)
            attempts.append(Attempt(slot.key, error))
            continue
        if not hasattr(agent, "ask"):
            continue
        core.health.started(slot.key)
        known = False
        try:
            value = await agent.ask(cls, text, retries=retries)
            known = True
        except (ProviderError, AllAgentsFailedError) as error:
            known = True
            core.log.warning("%s did not answer a question: %s", slot.key, error)
            core.health.failed(slot.key, error)
            attempts.append(Attempt(slot.key, error))
        else:
            core.health.succeeded(slot.key)
            return value
        finally:
            if not known:  # cancelled: that says nothing of the child
                core.health.abandoned(slot.key)
    if not attempts:
        raise TypeError("ask() needs a child that asks a model, and this FallbackAgent has none")
    raise AllAgentsFailedError(attempts)
