"""Group A: what is understood of a provider's bytes. Each turn of a case is one answer, checked by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from case_agents import check_known
from case_expect import Since, check, check_words
from case_world import World
from collect import understood
from micdrop_agent import wire
from micdrop_agent.testing import run_virtual
from wire_replies import wire_script

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from micdrop_agent.testing import Backend


def run_wire_case(folder: Path, backend: Backend, strict: ModuleType | None = None) -> list[str]:
    """Play the case in ``folder``; what differs from its expectation."""
    case = understood(folder / "wire.json")
    if "providers" in case:
        check_known(case, {"providers"}, "wire.json")
    else:
        case = understood(folder / "wire.json", "protocol", "attempts")
    expect = understood(folder / "expect.json")
    turns = expect.get("turns", [expect])
    if "turns" in expect:
        check_known(expect, {"turns", "options", "open_question", "note"}, "expect")
    for turn in turns:
        for one in (turn, *turn.get("variants", {}).values()):
            check_words(one)
    world = _WireWorld(folder, case, [expect, *turns])
    return run_virtual(backend, world.play, turns, strict, backend)


class _WireWorld(World):
    """The world of a scenario, with recorded bytes in place of scripts."""

    def __init__(self, folder: Path, case: dict[str, Any], expects: list[dict[str, Any]]) -> None:
        self.wires: dict[str, dict[str, Any]] = case.get("providers", {"provider": case})
        options: dict[str, Any] = {"timeout_ms": 2000}
        for expect in expects:
            options |= expect.get("options", {})
        protocols = {name: one.get("protocol", "chat") for name, one in self.wires.items()}
        protocol = protocols if "providers" in case else protocols["provider"]
        super().__init__(
            {"protocol": protocol, "options": options, "steps": [], "expect": {}},
            {"agent": {"auto_semantic_turn": False, "auto_ignore_user_noise": False}},
        )
        self.names = list(self.wires) if "providers" in case else []
        self._folder = folder

    def hosts(self) -> list[str]:
        return self.names

    def scripts(self) -> Any:
        read = lambda name: (self._folder / name).read_bytes()  # noqa: E731 - it is all that it does
        return {f"{name.lower()}.test": self.noted(wire_script(one, read)) for name, one in self.wires.items()}

    async def play(self, turns: list[dict[str, Any]], strict: ModuleType | None, backend: Backend) -> list[str]:
        problems: list[str] = []
        self.facts["turns"] = []
        async with self.make_provider() as provider, self.make_agent() as agent:
            for number, turn in enumerate(turns, 1):
                self.facts["turns"].append(len(provider.requests))
                agent.add_user_message("Hello?")
                since = Since(len(provider.requests), len(self.toolbox.runs), len(agent.conversation), len(self.log))
                begin = anyio.current_time()
                heard = self.start(f"a{number}")
                await self.consume(heard)
                self.facts["took"] = anyio.current_time() - begin
                await heard.answer.wait()
                await anyio.sleep(0.05)
                self.look(provider)
                self.facts["active"] = getattr(agent, "active_name", None)
                self.facts["conversation"] = wire.dump(agent.conversation)
                problems += check(self, turn, strict, backend, since)
        return problems
