"""What a whole call costs on our side: scripted speech services, a link without a network.

    python benchmarks/call.py --loop asyncio --calls 500 --seconds 10

Four rows. ``first audio``: from the transcript after StopSpeaking to the first audio frame at the client.
``barge-in``: from StartSpeaking to the last audio frame that the client got, while the voice writes as fast as
it can. ``many calls``: so many at once, each with 10 frames a second each way; how late a frame of the
assistant was, against the moment at which its voice wrote it. ``memory``: what the process grew by for each.

Goals: first audio 2 ms (p50), barge-in 1 ms, no frame later than 100 ms at p99 with 500 calls on one core,
150 KiB a call. Beside each time stands that of a bare task that hands frames over a memory object stream.
"""

from __future__ import annotations

import gc
import struct
import time
from typing import TYPE_CHECKING

import anyio
from _harness import Goals, Samples, arguments, pin, quiet, resident, run, tell

from micdrop_agent import Agent
from micdrop_agent.call import AsItComes, Call
from micdrop_agent.testing import MemoryClient, memory_link

if TYPE_CHECKING:
    from anyio.abc import ObjectReceiveStream

    from micdrop_agent import Turn
    from micdrop_agent.call import Hearing, Voice

FRAME = bytes(3200)


class Words(Agent):
    """Says a sentence at once, or a word every 100 ms for ever."""

    def __init__(self, *, endless: bool) -> None:
        super().__init__()
        self.endless = endless

    async def generate_answer(self, turn: Turn) -> None:
        """Say it."""
        await turn.write("This is what I have to say.")
        while self.endless:
            await anyio.sleep(0.1)
            await turn.write("and more ")


class Ear:
    """Knows the text as soon as the audio has ended, and when that was."""

    def __init__(self) -> None:
        self.known_at = 0

    async def transcribe(self, audio: ObjectReceiveStream[bytes], hearing: Hearing) -> None:
        """Wait for the end."""
        async for _ in audio:
            pass
        self.known_at = time.perf_counter_ns()
        hearing.final("What do you have to say?")


class Stamping:
    """One frame for each piece of text; its first samples are the time."""

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say all of it."""
        async for _ in text:
            await voice.write(struct.pack("<q", time.perf_counter_ns()) + FRAME[8:])


class Torrent:
    """Writes as fast as it can."""

    async def synthesize(self, text: ObjectReceiveStream[str], voice: Voice) -> None:
        """Say all of it."""
        async for _ in text:
            while not voice.fenced:
                await voice.write(FRAME)


async def first_audio(samples: Samples, rounds: int) -> None:
    """One call, turn after turn."""
    link, client = memory_link()
    ear = Ear()
    call = Call(link, agent=Words(endless=False), stt=ear, tts=Stamping(), speech=AsItComes)
    got: list[int] = []
    client.on_frame = lambda frame: got.append(time.perf_counter_ns()) if isinstance(frame, bytes) else None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run)
        await client.receives("SkipAnswer")
        for number in range(rounds + 50):
            got.clear()
            client.put("StartSpeaking")
            client.put(FRAME)
            client.put("StopSpeaking")
            await client.until(lambda: got)
            if number >= 50:
                samples.add("first audio", "call", (got[0] - ear.known_at) / 1e6)
            client.frames.clear()
            client.times.clear()
        client.close()


async def first_audio_floor(samples: Samples, rounds: int) -> None:
    """Five tasks in a row that hand one item on."""
    streams = [anyio.create_memory_object_stream[int](1) for _ in range(5)]
    done = anyio.Event()

    async def hand_on(place: int) -> None:
        async for moment in streams[place][1]:
            if place + 1 < len(streams):
                await streams[place + 1][0].send(moment)
            else:
                samples.add("first audio", "five tasks", (time.perf_counter_ns() - moment) / 1e6)
                done.set()

    async with anyio.create_task_group() as tasks:
        for place in range(len(streams)):
            tasks.start_soon(hand_on, place)
        for _ in range(rounds):
            done = anyio.Event()
            await streams[0][0].send(time.perf_counter_ns())
            await done.wait()
        for send, _ in streams:
            send.close()
    for _, receive in streams:
        receive.close()


async def barge_in(samples: Samples, rounds: int) -> None:
    """A call whose voice never stops by itself."""
    for _ in range(rounds):
        link, client = memory_link()
        call = Call(link, agent=Words(endless=False), stt=Ear(), tts=Torrent(), speech=AsItComes)
        last = [0]

        def note(frame: str | bytes, last: list[int] = last) -> None:
            if isinstance(frame, bytes):
                last[0] = time.perf_counter_ns()

        client.on_frame = note
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call.run)
            client.speak()
            await client.receives("audio", 20)
            began = time.perf_counter_ns()
            client.put("StartSpeaking")
            await anyio.sleep(0.02)
            samples.add("barge-in", "call", max(0, last[0] - began) / 1e6)
            client.close()


async def talker(client: MemoryClient, late: list[float], seconds: float, offset: float) -> None:
    """A client that speaks for a second, and listens for two, at its own moment."""
    client.on_frame = lambda frame: _note_late(frame, late)
    await anyio.sleep(offset)
    end = anyio.current_time() + seconds
    while anyio.current_time() < end:
        client.put("StartSpeaking")
        for _ in range(10):
            client.put(FRAME)
            await anyio.sleep(0.1)
        client.put("StopSpeaking")
        for _ in range(20):  # what it says into the answer is not heard; the frames come all the same
            client.put(FRAME)
            await anyio.sleep(0.1)
        client.frames.clear()
        client.times.clear()
    client.close()


def _note_late(frame: str | bytes, late: list[float]) -> None:
    if isinstance(frame, bytes):
        (written,) = struct.unpack("<q", frame[:8])
        late.append((time.perf_counter_ns() - written) / 1e6)


async def many(samples: Samples, calls: int, seconds: float) -> float:
    """So many calls at once; returns the share of one core that they took."""
    late: list[float] = []
    share = 0.0
    async with anyio.create_task_group() as tasks:
        gc.collect()
        before = resident()
        clients: list[MemoryClient] = []
        for _ in range(calls):
            link, client = memory_link()
            clients.append(client)
            call = Call(link, agent=Words(endless=True), stt=Ear(), tts=Stamping(), speech=AsItComes)
            tasks.start_soon(call.run)
        for number, client in enumerate(clients):
            tasks.start_soon(talker, client, late, seconds, number / calls * 3)
        await anyio.sleep(3 + seconds / 2)
        samples.add("memory", "call", (resident() - before) / calls / 1024)
        cpu, wall = time.process_time(), time.perf_counter()
        await anyio.sleep(min(3.0, seconds / 3))
        share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    for value in late:
        samples.add("many calls", "call", value)
    return share


def main() -> None:
    """Measure all four, and print one line."""
    parser = arguments(__doc__, rounds=500)
    parser.add_argument("--calls", type=int, default=500, help="calls at once (500)")
    parser.add_argument("--seconds", type=float, default=9.0, help="how long they last (9)")
    options = parser.parse_args()
    pin()
    samples, goals = Samples(), Goals()
    with quiet():
        run(options.loop, first_audio, samples, options.rounds)
        run(options.loop, first_audio_floor, samples, options.rounds)
        run(options.loop, barge_in, samples, max(10, options.rounds // 10))
    share = run(options.loop, many, samples, options.calls, options.seconds)
    goals.at_most("first audio, p50 ms", samples.median("first audio", "call"), 2)
    goals.at_most("barge-in, p50 ms", samples.median("barge-in", "call"), 1)
    goals.at_most("frames late, p99 ms", samples.percentile("many calls", "call", 0.99), 100)
    goals.at_most("KiB a call", samples.median("memory", "call"), 150)
    frames = len(samples.rows["many calls"]["call"])
    more = {"calls": options.calls, "core": round(share, 3), "frames": frames}
    tell("call", options.loop, None, goals, medians=samples.medians(3), **more)


if __name__ == "__main__":
    main()
