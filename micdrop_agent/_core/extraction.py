"""What an agent does with the value at the end of an answer, which is not spoken.

Turn ── filters() ──▶ the value is taken out of the text ── found(turn) ──▶ callback, metadata
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from micdrop_agent.errors import ToolInputError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from micdrop_agent._core.core import Core
    from micdrop_agent._core.turn import Turn
    from micdrop_agent.options import ExtractJson, ExtractTag
    from micdrop_agent.text import TextFilter
    from micdrop_agent.tools import TypedValue

__all__ = ["Extraction"]


class Extraction:
    """The option ``extract`` of one agent at work.

    Args:
        core: The agent, which logs and runs async callbacks.
        options: What to look for, and what to do with it.
    """

    __slots__ = ("_core", "_options", "_typed")

    def __init__(self, core: Core, options: ExtractJson | ExtractTag) -> None:
        self._core = core
        self._options = options
        self._typed: TypedValue | None = None
        kind: type | None = getattr(options, "type", None)
        if kind is not None:
            from micdrop_agent.tools import TypedValue

            self._typed = TypedValue(kind)

    def take_from(self, text: str) -> tuple[str, dict[str, Any] | None]:
        """The text without the value, and metadata if there is one and it is asked for."""
        from micdrop_agent.text import extract_text

        left, found, value = extract_text(text, self._options)
        if not found or (made := self._made(value)) is None:
            return left, None
        return left, self._use(made, value, None) or None

    def filters(self) -> tuple[TextFilter, ...]:
        """What takes the value out of one message while it is written."""
        from micdrop_agent.text import ExtractFilter

        return (ExtractFilter(self._options),)

    def found(self, turn: Turn) -> dict[str, Any]:
        """Metadata of the value that the filters of ``turn`` found, after they have ended."""
        if not turn.filters:
            return {}
        extractor: Any = turn.filters[0]
        if extractor.warning:
            self._core.log.warning("%s", extractor.warning)
        if not extractor.found:
            return {}
        made = self._made(extractor.value)
        if made is None:
            return {}
        turn.facts.extracted = made
        return self._use(made, extractor.value, turn)

    def _made(self, value: Any) -> Any:
        """``value`` as an instance of the class that was asked for; ``None`` if it does not fit."""
        if self._typed is None:
            return value
        try:
            return self._typed.read(value)
        except ToolInputError as error:
            self._core.log.warning("the value at the end of the answer is %s", error)
            return None

    def _use(self, value: Any, plain: Any, turn: Turn | None) -> dict[str, Any]:
        """Hand ``value`` to the callback; what is stored is ``plain``, as it came."""
        if self._options.callback is not None:
            if turn is not None and turn.guessing:
                self._core.root().spawn(lambda: self._when_adopted(value, turn), "micdrop extract callback")
            else:
                self._call_back(value)
        return {"extracted": plain} if self._options.save_in_metadata else {}

    def _call_back(self, value: Any) -> None:
        """Call the callback; its errors are logged, a coroutine runs in the background."""
        core, callback = self._core, self._options.callback
        assert callback is not None
        try:
            returned = callback(value)
        except Exception:  # foreign code: the value is still stored and in the result
            core.log.exception("the extract callback raised; the answer goes on")
            return
        if not inspect.iscoroutine(returned):
            return
        root = core.root()
        if root.state == "open":
            root.spawn(lambda: self._await(returned), "micdrop extract callback")
        else:
            returned.close()
            core.log.error("the extract callback is async and needs an open agent to run in")

    async def _when_adopted(self, value: Any, turn: Turn) -> None:
        await turn.adopted()
        if not turn.fenced:
            self._call_back(value)

    async def _await(self, work: Awaitable[object]) -> None:
        try:
            await work
        except Exception:  # foreign code, as above
            self._core.log.exception("the extract callback raised; the answer goes on")
