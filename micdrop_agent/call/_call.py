"""A whole voice call over one link: speech in, the agent's answers, speech out.

    async with starlette_link(websocket) as link:
        await Call(link, agent=agent, stt=stt, tts=tts, first_message="Hello!").run()

It speaks the protocol of the Micdrop browser client. Its invariants (docs/design.md, "A call"):

C1. After StartSpeaking no audio of an earlier answer is sent.
C2. After the connection and each StopSpeaking audio or SkipAnswer follows, whatever fails.
C3. Frames go out in the order of the changes that they report.
C4. The stored text of a cut answer is what was played.
C5. When ``run()`` has returned nothing of the call is alive.
C6. A part that fails does not end the call.
C7. A client can harm no call but its own.

Source: Micdrop ``MicdropServer``.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from micdrop_agent._core.core import core_of
from micdrop_agent._core.log import SafeLog, within_call
from micdrop_agent.call._options import Options
from micdrop_agent.call._session import Session
from micdrop_agent.options import check_text

if TYPE_CHECKING:
    from typing import Unpack

    from micdrop_agent.call._options import CallOptions
    from micdrop_agent.call._protocol import Link
    from micdrop_agent.call._result import CallResult

__all__ = ["Call"]

log = SafeLog(logging.getLogger("micdrop_agent.call"))


class Call:
    """One call with one client; ``run()`` it once.

    Args:
        link: The connection to the client.
        agent: Answers. One that is not open yet is opened, and closed with the call. ``None``:
            what the caller says is stored and sent back as messages, and nothing is answered.
        stt: Hears.
        tts: Speaks; ``None``: answers are only sent as messages.
        first_message: Said and stored when the call begins.
        generate_first_message: The agent begins, on its system prompt alone.
        speech: How the text of an answer is cut for the voice: a ``Speech``, or a function that makes
            a splitter, such as ``AsItComes``. The default is ``Speech()`` where the extra ``speech``
            is installed, and the chunks as they come where it is not.
        partial_messages: Send ``PartialAssistantMessage``, the text of an answer while it comes.
        send_tools: Send tool calls and their results to the client. They hold what a caller
            should not read; the original always sends them.
        send_system: Send system messages that are added during the call.
        turn_detector: Tells whether the caller has finished, by the sound of the voice.
        turn_max_wait: Seconds after which a caller who does not go on is answered anyway.
        classifier: Is asked about everything the caller says, beside the answer.
        send_classification: Send ``Classification`` to the client.
        idle: What happens when nobody says anything.
        backchannel: Tells of a text whether it is only a sound of agreement ("mhm"): then the
            answer goes on where the caller stopped to hear it, and the text is not stored.
            ``backchannels("en", "de")`` knows those of some languages.
        min_words: A text with fewer words than this is a backchannel too.
        speculate: When the caller has stopped, begin an answer to the text as far as it was understood. It is the
            answer if the final text is the same; if not, it costs its tokens (``agent.speculate()``).
        failure_text: Said when the agent or the speech-to-text has failed.
        end_on_failure: Send ``EndCall`` after that.
        transcript_timeout: Seconds that the text may take after the caller has stopped.
        first_audio_timeout: Seconds from the first text to the first audio.
        audio_gap_timeout: Seconds without audio while there is text to say.
        reply_timeout: Seconds after which a client that waits is told not to, whatever the reason.
        max_turn: Seconds of audio that a turn of the caller may have; the rest is not heard.
        audio_buffer: Seconds of audio that may wait for a slow client. When it is full and the
            client takes nothing for as long, the answer is cut.

    Raises:
        TypeError: An option has the wrong type; the message names it.
        ValueError: An option is out of range; the message names it.
    """

    def __init__(self, link: Link, **options: Unpack[CallOptions]) -> None:
        for method in ("receive", "send", "close"):
            if not callable(getattr(link, method, None)):
                raise TypeError(f"link must have receive(), send() and close(), not {link!r}")
        self.link = link
        self.options = Options(**options)
        self._session: Session | None = None
        self._result: CallResult | None = None

    async def run(self) -> CallResult:
        """Talk until the client has gone, or ``stop()`` is called.

        When this returns, or raises, no task of the call is alive, and what was being said is cut
        where the caller heard it.

        Raises:
            RuntimeError: It was run before.
        """
        if self._session is not None:
            raise RuntimeError("a call is run once; make a new Call for the next client")
        session = self._session = Session(self.link, self.options, log)
        try:
            async with AsyncExitStack() as stack:
                if self.options.agent is not None:
                    stack.enter_context(within_call(core_of(self.options.agent).call_id))
                if self.options.agent is not None and core_of(self.options.agent).state == "new":
                    await stack.enter_async_context(self.options.agent)
                await session.run()
        finally:
            self._result = session.result()
        return self._result

    @property
    def result(self) -> CallResult:
        """The conversation, the turns and their times; complete when ``run()`` has ended.

        Raises:
            RuntimeError: The call was not run yet.
        """
        if self._result is not None:
            return self._result
        return self._live().result()

    def answer(self) -> None:
        """Have the agent answer the conversation as it is, for example after a note to it.

        Does nothing if the last item was answered already.

        Source: Micdrop ``MicdropServer.answer()``.
        """
        self._live().mouth.answer()

    def speak(self, text: str) -> None:
        """Say ``text`` without storing it; after what is being said.

        Source: Micdrop ``MicdropServer.speak()``.
        """
        check_text("text", text)
        live = self._live()
        if live.mouth.tts is not None:
            live.mouth.say(text)

    def interrupt(self) -> None:
        """Stop what is being said, as if the caller had spoken."""
        self._live().mouth.cut(flush=False)

    def end_call(self) -> None:
        """Ask the client to hang up (``EndCall``)."""
        self._live().end_call()

    @property
    def hanging_up(self) -> bool:
        """Whether the client was asked to hang up."""
        return self._session is not None and self._session.mouth.hung_up

    def stop(self, *, after_turn: bool = False) -> None:
        """End ``run()``; the link stays open for whoever has made it.

        Args:
            after_turn: End it as soon as nobody speaks, no text is awaited, and everything that was said
                has been heard; that may be never. A client that was asked to hang up has the time to.
        """
        live = self._live()
        if after_turn:
            live.watch.leave()
        else:
            live.stop()

    def _live(self) -> Session:
        if self._session is None:
            raise RuntimeError("the call is not running; await call.run() first, in a task of its own")
        return self._session
