"""Groups C and D: the world of one scenario, that is provider, agent, consumers, and everything they see."""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import attrs

from case_agents import DIALECTS, class_of, model_agent
from case_script import default_scripts, fallback_options, lists_of, script_parts, tools_used
from case_tools import Toolbox
from micdrop_agent import wire
from micdrop_agent.events import EVENT_TYPES, AnswerFailed
from micdrop_agent.testing import ScriptedProvider, parts, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from micdrop_agent import Agent, Answer, AnswerResult
    from micdrop_agent.testing import Exchange, ReceivedRequest, Reply


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
    raises: Exception | None = None
    """What the host's own block raises."""
    failures: list[BaseException] = attrs.Factory(list)
    closed_at: dict[int, float] = attrs.Factory(dict)
    """When the reply to each request was over, by the server's clock."""
    open_requests: int = 0
    sent_at: dict[str, float] = attrs.Factory(dict)
    """When the server sent an end mark."""

    # -- provider

    def make_provider(self) -> ScriptedProvider:
        self.provider = ScriptedProvider(self.scripts())
        self.provider.on_request = self._on_request
        return self.provider

    def scripts(self) -> Any:
        script = self.settings.get("provider", self.scenario.get("provider"))
        names = self.hosts()
        if not names:
            return self._script(script)
        lists = script if isinstance(script, dict) else {}
        return {f"{name.lower()}.test": self._script(lists.get(name)) for name in names}

    def _script(self, lists: list[list[Any]] | None) -> Any:
        whole = default_scripts(self.scenario) if lists is None else lists
        return self.noted(partial(self._pick, whole, lists is None))

    def noted(self, pick: Callable[[ReceivedRequest], Reply]) -> Callable[[ReceivedRequest], Reply]:
        """The same replies; it is seen when each one sends its end mark, and when it is over."""

        def noting(request: ReceivedRequest) -> Reply:
            reply = pick(request)

            async def noted(exchange: Exchange) -> None:
                self.open_requests += 1
                tail, send = b"", exchange.send

                async def seen(data: bytes) -> None:
                    nonlocal tail
                    await send(data)
                    tail = tail[-40:] + data
                    if b"[DONE]" in tail or b'"response.completed"' in tail:
                        self.sent_at["[DONE]"] = anyio.current_time()

                exchange.send = seen  # type: ignore[method-assign]
                try:
                    await reply(exchange)
                finally:
                    self.open_requests -= 1
                    self.closed_at[len(self.closed_at)] = anyio.current_time()

            return noted

        return noting

    def look(self, provider: ScriptedProvider, when: str = "open_connections") -> None:
        """Note which connections are open."""
        self.facts[when] = provider.open_connections
        self.facts[f"{when}_of"] = dict(provider.open_by_host)

    def _pick(self, lists: list[list[Any]], default: bool, request: ReceivedRequest) -> Reply:
        number = request.number
        if self.own_scripts is not None:
            # An answer step brought a script of its own: it holds from that answer on.
            own = self.own_scripts
            if isinstance(own, dict):
                own = own.get(request.host.partition(".")[0].upper(), [])
            lists, number, default = own, number - self.own_from.get(request.host, 0), False
        if number < len(lists):
            return parts(script_parts(lists[number]))
        repeat = default or self.scenario.get("after", self.scenario["expect"].get("after")) == "repeat_last"
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
        member = next((name for name in self.hosts() if f"{name.lower()}.test" == host), "provider")
        protocol = self.scenario.get("protocol", "chat")
        if isinstance(protocol, dict):
            protocol = protocol.get(member, "chat")
        if wanted := self.scenario["expect"].get(f"{member}_request_valid_for"):
            # A case about what one server takes from another: this member speaks that server's dialect.
            protocol, dialect = DIALECTS[wanted if isinstance(wanted, str) else wanted[0]]
            more |= dialect
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
        if isinstance(event, AnswerFailed):
            self.failures.append(event.error)

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
