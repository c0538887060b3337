"""Groups C and D: the world of one scenario, that is provider, agent, consumers, and everything they see."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import attrs

from case_agents import Toolbox, UnknownWordError, class_of, model_agent
from micdrop_agent import wire
from micdrop_agent.events import EVENT_TYPES
from micdrop_agent.testing import ScriptedProvider, parts

if TYPE_CHECKING:
    from micdrop_agent import Agent, Answer, AnswerResult
    from micdrop_agent.testing import ReceivedRequest, Reply

DEFAULT_SCRIPT: list[Any] = [{"text": ["We open "]}, {"after_ms": 20}, {"text": ["at nine."]}, {"end": True}]
"""What the provider says when a scenario has no script."""

PROVIDER_WORDS = frozenset(
    [
        "text",
        "tool",
        "args",
        "id",
        "raw_delta",
        "finish",
        "after_ms",
        "wait_ms",
        "buffered",
        "silence",
        "cut",
        "status",
        "end",
        "if_tools_offered",
        "else",
    ]
)


@attrs.define(eq=False)
class Heard:
    """One answer as its consumer saw it."""

    name: str
    answer: Answer
    chunks: list[str] = attrs.Factory(list)
    ended: bool = False
    error: BaseException | None = None

    @property
    def text(self) -> str:
        return "".join(self.chunks)


@attrs.define(eq=False, slots=False)
class World:
    """What one run of a scenario consists of and shows."""

    scenario: dict[str, Any]
    settings: dict[str, Any]
    """Overrides of the variant that is played: agent options, script changes."""
    heard: dict[str, Heard] = attrs.Factory(dict)
    log: list[tuple[str, ...]] = attrs.Factory(list)
    toolbox: Toolbox = attrs.Factory(Toolbox)
    problems: list[str] = attrs.Factory(list)
    extracted: list[Any] = attrs.Factory(list)
    records: list[Any] = attrs.Factory(list)
    logged: list[logging.LogRecord] = attrs.Factory(list)
    errors: list[BaseException] = attrs.Factory(list)
    facts: dict[str, Any] = attrs.Factory(dict)
    histories: list[list[dict[str, Any]]] = attrs.Factory(list)
    """The conversation at the moment of each request."""
    changed: anyio.Event = attrs.Factory(anyio.Event)
    own_scripts: list[list[Any]] | None = None
    own_from: int = 0

    # -- provider

    def make_provider(self) -> ScriptedProvider:
        script = self.settings.get("provider", self.scenario.get("provider"))
        if isinstance(script, dict):
            self.provider = ScriptedProvider(
                {f"{name.lower()}.test": partial(self._pick, lists) for name, lists in script.items()}
            )
        else:
            self.provider = ScriptedProvider(partial(self._pick, script if script is not None else [DEFAULT_SCRIPT]))
        self.provider.on_request = self._on_request
        return self.provider

    def _pick(self, lists: list[list[Any]], request: ReceivedRequest) -> Reply:
        number = request.number
        if self.own_scripts is not None:
            # An answer step brought a script of its own: it holds from that answer on.
            lists, number = self.own_scripts, number - self.own_from
        script = lists[min(number, len(lists) - 1)]
        for part in script:
            if unknown := set(part) - PROVIDER_WORDS:
                raise UnknownWordError(f"provider words {sorted(unknown)}")
        return parts(script)

    def _on_request(self, request: ReceivedRequest) -> None:
        self.note("request", request.host)
        self.histories.append(wire.dump(self.agent.conversation))

    def hosts(self) -> list[str]:
        script = self.settings.get("provider", self.scenario.get("provider"))
        return list(script) if isinstance(script, dict) else []

    # -- agent

    def make_agent(self) -> Agent:
        options: dict[str, Any] = dict(self.scenario.get("options", {}))
        for step in self.scenario["steps"]:
            options |= step.get("options", {})
        options |= self.settings.get("options", {})
        if not self.hosts():
            self.agent = self._model("provider.test", options)
        else:
            factories = [partial(self._child, name, options.get(name, {})) for name in self.hosts()]
            rest = {name: value for name, value in options.items() if name not in self.hosts()}
            if unknown := set(rest) - {"after_partial"}:
                raise UnknownWordError(f"options {sorted(unknown)}")
            self.agent = class_of("fallback")(
                factories, names=self.hosts(), first_chunk_timeout=2.0, raise_on_failure=False, **rest
            )
        self.agent.logger = logging.getLogger(f"case.{id(self)}")
        self.agent.logger.propagate = False
        self.agent.logger.addHandler(_Keep(self.logged))
        for kind in EVENT_TYPES:
            self.agent.on(kind, self._on_event)
        return self.agent

    def _child(self, name: str, options: dict[str, Any]) -> Agent:
        return self._model(f"{name.lower()}.test", options)

    def _model(self, host: str, options: dict[str, Any]) -> Agent:
        tools = self.toolbox.standard()
        tools += [self.toolbox.special(name, spec) for name, spec in self.scenario.get("tools", {}).items()]
        tools += [self.toolbox.from_given(spec) for spec in self.settings.get("given_tools", ())]
        names = {tool.name for tool in tools}
        for wanted in self._tools_used():
            if wanted not in names | {"end_call", "semantic_turn", "ignore_user_noise"}:
                tools.append(self.toolbox.special(wanted, {}))
        more: dict[str, Any] = {"auto_semantic_turn": True, "auto_ignore_user_noise": True} | self.settings.get(
            "agent", {}
        )
        raises = self.settings.get("raise_on_failure", False)
        return model_agent(
            "chat",
            self.provider,
            host=host,
            options=options,
            tools=tools,
            extracted=self.extracted.append,
            raise_on_failure=raises,
            **more,
        )

    def _tools_used(self) -> list[str]:
        found: list[str] = []

        def walk(value: Any) -> None:
            if isinstance(value, dict):
                if isinstance(value.get("tool"), str):
                    found.append(value["tool"])
                for inner in value.values():
                    walk(inner)
            elif isinstance(value, list):
                for inner in value:
                    walk(inner)

        walk(self.scenario.get("provider"))
        walk(self.scenario["steps"])
        return list(dict.fromkeys(found))

    # -- seeing

    def note(self, *entry: str) -> None:
        self.log.append(entry)
        self.changed.set()
        self.changed = anyio.Event()

    def _on_event(self, event: Any) -> None:
        dumped = wire.dump_event(event)
        if dumped is not None:
            self.note("event", dumped["event"])

    async def until(self, ready: Any, what: str) -> None:
        with anyio.move_on_after(60):
            while not ready():
                await self.changed.wait()
        if not ready():
            raise AssertionError(f"never came: {what}")

    def start(self, name: str) -> Heard:
        heard = Heard(name, self.agent.answer())
        self.heard[name] = heard
        self.note("answer", name)
        return heard

    async def consume(self, heard: Heard, *, stop_after: int | None = None) -> None:
        try:
            async for chunk in heard.answer:
                heard.chunks.append(chunk)
                self.note("text", heard.name)
                await self.on_chunk(heard)
                if stop_after is not None and len(heard.chunks) >= stop_after:
                    return
        except Exception as error:  # noqa: BLE001  # what leaves the iteration is compared
            heard.error = error
        except BaseException:
            heard.ended = True
            self.note("reader cancelled", heard.name)
            raise
        heard.ended = True
        self.facts[f"end_at:{heard.name}"] = anyio.current_time()
        self.note("stream_end", heard.name)

    async def on_chunk(self, heard: Heard) -> None:
        """Replaced by a trigger such as ``chunk:2``, which acts before the next chunk is read."""

    @property
    def results(self) -> list[AnswerResult]:
        return [heard.answer.result for heard in self.heard.values() if heard.answer.status != "running"]


class _Keep(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.DEBUG)
        self.records = records

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


async def settle(steps: int = 20) -> None:
    """Let everything that is ready run."""
    for _ in range(steps):
        await anyio.lowlevel.checkpoint()
