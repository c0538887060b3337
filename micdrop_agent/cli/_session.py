"""One chat: turns from ``--say``, from a pipe, or from a person with Ctrl-C as barge-in.

signals ──────────▶ watch ──┬─ an answer runs: agent.cancel()
                            └─ else: leave, on a second Ctrl-C
Editor or Lines ──▶ turns ──▶ agent.answer() ──▶ Screen
                                   └── retries, switches, a store that fails ──▶ notes
"""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from micdrop_agent._core.groups import lone_error_unwrapped
from micdrop_agent.cli._agents import make_chain
from micdrop_agent.cli._editor import Editor, can_edit
from micdrop_agent.cli._interrupts import interrupts
from micdrop_agent.cli._lines import Lines
from micdrop_agent.cli._options import SYSTEM_PROMPT
from micdrop_agent.cli._progress import show_progress
from micdrop_agent.cli._screen import Figures, Screen, one_line
from micdrop_agent.cli._traces import Traces
from micdrop_agent.errors import MicdropError
from micdrop_agent.events import AgentSwitched

if TYPE_CHECKING:
    import signal
    from collections.abc import AsyncIterable, Sequence
    from pathlib import Path

    from micdrop_agent._core.agent import Agent
    from micdrop_agent._core.answer import Answer
    from micdrop_agent.cli._kept import Kept
    from micdrop_agent.cli._options import ChatArguments
    from micdrop_agent.messages import Item

__all__ = ["chat"]

KEPT_SHOWN: Final = 60
"""Characters that are shown of an answer that was cut; the conversation has all of it."""

SAVE_TIMEOUT: Final = 5.0
"""Seconds that saving may hold up the end of a chat that was interrupted."""


async def chat(options: ChatArguments) -> int:
    """Run the whole chat; returns the exit code.

    Raises:
        MicdropError: It could not start, or a turn failed and nobody is there to try another.
        UsageError: The agent refused an option.
    """
    person = not options.say and sys.stdin.isatty()
    screen = Screen(json_only=options.json, prompting=person and not can_edit())
    async with AsyncExitStack() as stack:
        kept: Kept | None = None
        before: Sequence[Item] = ()
        if options.store is not None:
            from micdrop_agent.cli._kept import Kept

            kept = await stack.enter_async_context(Kept(options.store, options.call, screen.note))
            before = await kept.load()
        elif options.resume is not None:
            from micdrop_agent.cli._transcript import load

            before = load(options.resume)
        prompt = _prompt(options, before)
        agent = make_chain(
            (options.agent, *options.fallback),
            prompt=prompt,
            first_chunk_timeout=options.first_chunk_timeout,
            note=screen.note,
        )
        if options.resume is not None:
            agent.conversation.replace([agent.conversation[0], *_without_prompt(before)])
        return await Session(agent, options, screen, kept, person=person).run()


def _prompt(options: ChatArguments, before: Sequence[Item]) -> str:
    """What the user says now, else what the call began with, else our own."""
    from micdrop_agent.cli._transcript import prompt_of

    if options.system_prompt is not None:
        return options.system_prompt
    found = prompt_of(before)
    return SYSTEM_PROMPT if found is None else found


def _without_prompt(items: Sequence[Item]) -> Sequence[Item]:
    from micdrop_agent.cli._transcript import prompt_of

    return items if prompt_of(items) is None else items[1:]


class Session:
    """The state of a chat.

    Args:
        agent: Not opened yet.
        options: What the user asked for.
        screen: Where it is shown.
        kept: Where the call is kept, if anywhere.
        person: A person sits at the terminal.
    """

    def __init__(
        self, agent: Agent, options: ChatArguments, screen: Screen, kept: Kept | None, *, person: bool
    ) -> None:
        self._agent = agent
        self._options = options
        self._screen = screen
        self._kept = kept
        self._person = person
        self._traces = None if options.trace is None else Traces(agent, options.trace)
        self._scope = anyio.CancelScope()
        self._in_turn = False
        self._cut = False
        self._at_prompt = False
        self._leaving = False
        self._interrupted = False

    async def run(self) -> int:
        """Open the agent, take the turns, and print the JSON at the end, also after a failure."""
        try:
            with interrupts() as signals, lone_error_unwrapped():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch, signals)
                    with self._scope:
                        await self._converse()
                    tasks.cancel_scope.cancel()
        finally:
            self._screen.end_of_text()
            if self._traces is not None and self._traces.written:
                self._screen.note(self._traces.written)
            if self._options.json:
                from micdrop_agent import wire

                self._screen.json(wire.dumps(self._agent.conversation))
        if self._interrupted:
            raise MicdropError("interrupted")
        return 0

    async def _watch(self, signals: AsyncIterable[signal.Signals]) -> None:
        """Ctrl-C: a barge-in while an answer is heard, else the wish to leave."""
        async for _ in signals:
            if self._in_turn:
                self._cut = True
                self._agent.cancel()
            if not self._person:
                self._interrupted = True
            if self._at_prompt and not self._leaving:  # the plain prompt; in the editor Ctrl-C is a key
                self._leaving = True
                self._screen.note("press Ctrl-C again to leave")
            elif not self._in_turn:
                # While the agent still starts, there was no prompt to leave from.
                self._interrupted = self._interrupted or not self._at_prompt
                self._scope.cancel()

    async def _converse(self) -> None:
        async with self._agent:
            self._agent.on(AgentSwitched, self._switched)
            if self._kept is not None:
                await self._kept.attach(self._agent)
            await self._save()
            if self._options.say:
                for text in self._options.say:
                    await self._turn(text)
                    if self._interrupted:
                        return
                return
            await self._read()

    def _switched(self, event: AgentSwitched) -> None:
        self._screen.note(f"switched from {event.from_} to {event.to}: {event.reason}")

    async def _read(self) -> None:
        """Turns from standard input, to its end."""
        lines = Editor(self._screen.note) if self._person and can_edit() else Lines(sys.stdin.fileno())
        if self._person:
            self._screen.note(f"talking to {self._who()} · Ctrl-C interrupts an answer · Ctrl-D leaves")
        while not self._interrupted:
            self._screen.prompt()
            self._at_prompt = self._person
            self._leaving = False
            try:
                line = await lines.next()
            except anyio.get_cancelled_exc_class():
                self._screen.new_line()
                raise
            finally:
                self._at_prompt = False
            if line is None:
                self._screen.new_line()
                return
            self._screen.answered()
            if not line.strip():
                continue
            try:
                await self._turn(line)
            except MicdropError as error:
                if not self._person:
                    raise
                self._screen.note(f"error: {error}")

    def _who(self) -> str:
        return ", then ".join(spec.label for spec in (self._options.agent, *self._options.fallback))

    async def _turn(self, text: str) -> None:
        """One user message and its answer."""
        self._agent.add_user_message(text)
        self._in_turn = True
        self._cut = False
        try:
            await self._answer()
        finally:
            self._in_turn = False
            with anyio.move_on_after(SAVE_TIMEOUT, shield=True):
                await self._save()

    async def _answer(self) -> None:
        with lone_error_unwrapped():
            await self._hear()

    async def _hear(self) -> None:
        started = anyio.current_time()
        first: float | None = None
        chunks = 0
        answer = self._agent.answer()
        try:
            async with anyio.create_task_group() as tasks:
                if sys.stderr.isatty():  # a program reads what remains: the figures, and the error
                    tasks.start_soon(show_progress, answer, self._screen)
                async for chunk in answer:
                    if first is None:
                        first = anyio.current_time() - started
                    chunks += 1
                    self._screen.chunk(chunk)
                tasks.cancel_scope.cancel()
        finally:
            self._screen.end_of_text()
        figures = Figures(first=first, total=anyio.current_time() - started, chunks=chunks)
        if self._cut:  # not answer.status: what was still to be read of a complete answer is cut as well
            self._screen.note(_kept(answer))
        self._screen.note(str(figures))

    async def _save(self) -> None:
        if self._traces is not None:
            await self._traces.save()
        file: Path | None = self._options.transcript
        if file is None:
            return
        from micdrop_agent.cli._transcript import save

        await anyio.to_thread.run_sync(save, list(self._agent.conversation), file)


def _kept(answer: Answer) -> str:
    """What the conversation remembers of an answer that was cut."""
    text = one_line(answer.text)
    if not text:
        return "interrupted; nothing was kept"
    if len(text) > KEPT_SHOWN:
        text = f"… {text[-KEPT_SHOWN:]}"  # where it was cut is what matters
    return f'interrupted; kept: "{text}"'
