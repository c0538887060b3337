"""Groups C and D: the world of one scenario, that is provider, agent, consumers, and everything they see."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import attrs

from case_agents import class_of, model_agent
from case_script import DEFAULT_SCRIPT, fallback_options, lists_of, script_parts, tools_used
from case_tools import Toolbox
from micdrop_agent import wire
from micdrop_agent.events import EVENT_TYPES
from micdrop_agent.testing import ScriptedProvider, parts, say

if TYPE_CHECKING:
    from micdrop_agent import Agent, Answer, AnswerResult
    from micdrop_agent.testing import ReceivedRequest, Reply


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
    slow: dict[str, float] = attrs.Factory(dict)
    """Seconds that the consumer of an answer takes for each chunk."""
    changed: anyio.Event = attrs.Factory(anyio.Event)
    own_scripts: list[list[Any]] | dict[str, list[list[Any]]] | None = None
    own_from: dict[str, int] = attrs.Factory(dict)
    """How many requests each host had got when they came."""

    # -- provider

    def make_provider(self) -> ScriptedProvider:
        script = self.settings.get("provider", self.scenario.get("provider"))
        if names := self.hosts():
            lists = script if isinstance(script, dict) else {}
            self.provider = ScriptedProvider({f"{name.lower()}.test": self._script(lists.get(name)) for name in names})
        else:
            self.provider = ScriptedProvider(self._script(script))
        self.provider.on_request = self._on_request
        return self.provider

    def _script(self, lists: list[list[Any]] | None) -> Any:
        repeat = self.scenario.get("after", self.scenario["expect"].get("after")) == "repeat_last"
        return partial(self._pick, [DEFAULT_SCRIPT] if lists is None else lists, repeat or lists is None)

    def _pick(self, lists: list[list[Any]], repeat: bool, request: ReceivedRequest) -> Reply:
        number = request.number
        if self.own_scripts is not None:
            # An answer step brought a script of its own: it holds from that answer on.
            own = self.own_scripts
            if isinstance(own, dict):
                own = own.get(request.host.partition(".")[0].upper(), [])
            lists, number = own, number - self.own_from.get(request.host, 0)
        if number < len(lists):
            return parts(script_parts(lists[number]))
        return parts(script_parts(lists[-1])) if repeat and lists else say("Okay.")

    def bring_scripts(self, script: Any) -> None:
        """From now on the provider plays this: the parts of one response, a list per request, or one for each child."""
        if isinstance(script, dict):
            self.own_scripts = {name: lists_of(lists) for name, lists in script.items()}
        else:
            self.own_scripts = lists_of(script)
        self.own_from = dict(Counter(request.host for request in self.provider.requests))

    def _on_request(self, request: ReceivedRequest) -> None:
        self.note("request", request.host)
        self.histories.append(wire.dump(self.agent.conversation))

    def hosts(self) -> list[str]:
        """The names of the supervisor's children; none if there is one agent."""
        scripts = [self.settings.get("provider", self.scenario.get("provider"))]
        scripts += [step.get("provider") for step in self.scenario["steps"]]
        return list(next((script for script in scripts if isinstance(script, dict)), {}))

    # -- agent

    def make_agent(self) -> Agent:
        self.agent = self.new_agent()
        self.agent.logger = logging.getLogger(f"case.{id(self)}")
        self.agent.logger.propagate = False
        self.agent.logger.addHandler(_Keep(self.logged))
        for kind in EVENT_TYPES:
            self.agent.on(kind, self._on_event)
        return self.agent

    def new_agent(self) -> Agent:
        """One more agent like the one of the scenario."""
        options: dict[str, Any] = {**self.scenario["expect"].get("options", {}), **self.scenario.get("options", {})}
        for step in self.scenario["steps"]:
            options |= step.get("options", {})
        options |= self.settings.get("options", {})
        names = self.hosts()
        if not names:
            return self._model("provider.test", options)
        own, rest = fallback_options(options, names)
        factories = [partial(self._model, f"{name.lower()}.test", {**rest, **options.get(name, {})}) for name in names]
        raises = self.settings.get("raise_on_failure", False)
        agent: Agent = class_of("fallback")(factories, names=names, raise_on_failure=raises, **own)
        return agent

    def _model(self, host: str, options: dict[str, Any]) -> Agent:
        declared = self.scenario.get("tools", {})
        given = self.settings.get("given_tools", ())
        taken = {*declared, *(spec["name"] for spec in given)}
        tools = [tool for tool in self.toolbox.standard() if tool.name not in taken]
        tools += [self.toolbox.special(name, spec) for name, spec in declared.items()]
        tools += [self.toolbox.from_given(spec) for spec in given]
        names = {tool.name for tool in tools} | {"end_call", "semantic_turn", "ignore_user_noise"}
        tools += [self.toolbox.special(name, {}) for name in tools_used(self.scenario) if name not in names]
        more: dict[str, Any] = {"auto_semantic_turn": True, "auto_ignore_user_noise": True}
        more |= self.settings.get("agent", {})
        raises = self.settings.get("raise_on_failure", False)
        more |= {"tools": tools, "extracted": self.extracted.append, "raise_on_failure": raises}
        protocol = self.scenario.get("protocol", "chat")
        if isinstance(protocol, dict):
            protocol = protocol.get(host.partition(".")[0].upper(), "chat")
        return model_agent(protocol, self.provider, host=host, options=options, **more)

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
                if heard.name in self.slow:
                    await anyio.sleep(self.slow[heard.name])
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
