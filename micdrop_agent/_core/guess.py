"""An answer to what the caller has probably said, made before that is certain.

    speculate(text) ──▶ Guess ── adopt(final text) ──▶ the agent's answer, as if it had been asked for then
                          └───── discard() ──────────▶ nothing has happened

A guess is an answer with a conversation of its own, a copy with what was probably said. Until it is adopted its events
are held, its chunks stay in its pipe, and it waits before its first tool and before a hook. Adopting is one synchronous
step (docs/design.md, D20): what it did to its copy is done to the conversation, and its events are emitted. Every change of
the conversation in between discards it. Pinned in tests/test_core_guess.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from micdrop_agent._core import guards
from micdrop_agent._core.answer import Answer
from micdrop_agent._core.history import History
from micdrop_agent._interrupts import defer_interrupts
from micdrop_agent.events import MessageAdded
from micdrop_agent.messages import Message, is_blank
from micdrop_agent.options import check_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from micdrop_agent._core.core import Core
    from micdrop_agent.events import Event
    from micdrop_agent.messages import Item

__all__ = ["Guess", "same_words"]


def same_words(guessed: str, final: str) -> bool:
    """Whether two transcripts are equal but for case, punctuation and white space."""
    return _letters(guessed) == _letters(final)


def _letters(text: str) -> list[str]:
    return [letter for letter in text.casefold() if letter.isalnum()]


@defer_interrupts
class Guess:
    """What ``agent.speculate()`` returns.

    Args:
        core: The agent.
        text: What the caller has probably said.
        matches: Tells of the guessed and the final text whether they mean the same.
    """

    __slots__ = ("_answer", "_back", "_changes", "_core", "_decided", "_matches", "text")

    def __init__(self, core: Core, text: str, matches: Callable[[str, str], bool]) -> None:
        check_text("text", text)
        guards.check_listener(matches, "matches is a function of two strings")
        guards.may_answer(core.agent, core.state, owned=core.owner is not None)
        core.check_thread("speculate()")
        core.drop_guess()
        self.text = text
        self._core = core
        self._matches = matches
        self._answer: Answer | None = None
        self._decided: anyio.Event | None = None
        self._back: Callable[[], None] = core.way_back()
        self._changes: list[tuple[int, int, tuple[Item, ...]]] = []
        # None while another answer runs, which may have tools at work, nor beyond the budget of this turn.
        if not is_blank(text) and not core.answering and core.may_guess():
            self._begin()

    def _begin(self) -> None:
        core, home = self._core, self._core.home
        assert home is not None
        prompt = Message("user", self.text)
        draft = History([*core.conversation, prompt])
        draft.follow(lambda index, gone, come: self._changes.append((index, gone, come)))
        self._answer = Answer(core, prompt, home, draft=draft)
        core.guess = self
        core.conversation.watch(self.discard)
        core.launch(self._answer, None)

    @property
    def alive(self) -> bool:
        """Whether it may still be adopted."""
        return self._answer is not None

    def fits(self, text: str) -> bool:
        """Whether it would be adopted for ``text``."""
        return self._matches(self.text, text)

    def adopt(self, final_text: str, metadata: Mapping[str, Any] | None = None) -> Answer | None:
        """Make it the agent's answer to ``final_text``, which is added as the caller's message.

        Synchronous, like ``agent.answer()``. Chunks that are there already can be read at once.

        Returns:
            The answer; ``None`` if the guess was wrong, failed or was discarded: then nothing has happened,
            and the host adds the message and asks for an answer as always.
        """
        self._core.check_thread("adopt()")
        answer = self._answer
        if answer is not None and (answer.status == "failed" or not self.fits(final_text)):
            self.discard()
        current = self._core.current
        if self.alive and current is not None and not current.turn.fenced:
            current.stop(None, keep_unread=True)  # as answer() does; if that changes the conversation, it is over
        if answer is None or not self.alive:
            return None
        return self._adopted(answer, Message("user", final_text, metadata))

    def _adopted(self, answer: Answer, message: Message) -> Answer:
        core, history = self._core, self._core.conversation
        self._forget()
        index = history.push(message)
        for at, gone, come in self._changes:
            history.change(at, gone, come)
        held = _moved(answer, history, message)
        core.current = answer
        core.guessed = 0
        for began in core.began:
            began(answer)
        core.hub.emit(MessageAdded(message, index), *held)
        return answer

    def discard(self) -> None:
        """Drop it: its request is closed, and nothing of it has happened. Does nothing when that is the case already."""
        answer = self._answer
        if answer is None:
            return
        self._core.check_thread("discard()")
        self._forget()
        _drop(answer)
        self._back()
        usage = answer.turn.facts.usage
        if usage is not None:
            self._core.wasted = usage if self._core.wasted is None else self._core.wasted + usage

    async def decided(self) -> None:
        """Wait until it is adopted or discarded."""
        while self.alive:
            if self._decided is None:
                self._decided = anyio.Event()
            await self._decided.wait()

    def _forget(self) -> None:
        self._answer = None
        if self._decided is not None:
            self._decided.set()
        self._core.guess = None
        self._core.conversation.watch(None)


def _moved(answer: Answer, conversation: History, prompt: Message) -> list[Event]:
    """Have ``answer`` go on in ``conversation``, as the answer to ``prompt``; returns the events that were held."""
    conversation.mark = answer.ledger.conversation.mark
    answer.ledger.conversation = conversation
    answer.turn.answers(prompt)
    held, answer.held = answer.held or [], None
    answer.wake()
    return held


def _drop(answer: Answer) -> None:
    """Stop a guess, of which nothing has happened."""
    answer.turn.fence()
    answer.pipe.cut_off()
    if answer.status == "running":
        answer.end_as("cancelled", 0)
    answer.hang_up()
