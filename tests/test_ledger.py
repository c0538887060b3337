"""The record of one answer, without a loop: random courses against a model that keeps plain lists."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from micdrop_agent import Message, ToolCall, ToolResult
from micdrop_agent._core.history import History
from micdrop_agent._core.ledger import CANCELLED_OUTPUT, Ledger, OpenCall
from micdrop_agent.events import Event, MessageAdded, MessageCorrected
from micdrop_agent.messages import Item, is_blank

WORDS = st.text(alphabet="ab \u200b", min_size=1, max_size=4)
OPERATIONS = st.one_of(
    st.tuples(st.just("say"), WORDS),
    st.tuples(st.just("aside"), WORDS),
    st.tuples(st.just("commit"), st.sampled_from([None, {"refusal": True}])),
    st.tuples(st.just("settle"), WORDS),
    st.tuples(st.just("drop"), st.none()),
    st.tuples(st.just("open"), st.integers(0, 2)),
    st.tuples(st.just("close"), st.integers(0, 5)),
    st.tuples(st.just("add"), WORDS),
    st.tuples(st.just("user"), WORDS),
    st.tuples(st.just("took"), st.integers(1, 3)),
)


def replay(start: list[Item], events: list[Event]) -> list[Item]:
    """What somebody knows who only hears the events."""
    items = list(start)
    for event in events:
        if isinstance(event, MessageAdded):
            items.insert(event.index, event.message)
        elif isinstance(event, MessageCorrected):
            assert items[event.index] is event.old
            items[event.index : event.index + 1] = [] if event.new is None else [event.new]
    return items


@attrs.define(eq=False)
class Course:
    """A ledger at work, with a plain record of what it was told."""

    ledger: Ledger
    events: list[Event] = attrs.field(factory=list[Event])
    calls: list[OpenCall] = attrs.field(factory=list[OpenCall])
    pieces: list[tuple[str, str]] = attrs.field(factory=list[tuple[str, str]])
    unread: list[str] = attrs.field(factory=list[str])
    number: int = 0

    def do(self, name: str, value: Any) -> None:
        getattr(self, name)(value)

    def say(self, text: str) -> None:
        self.ledger.say(text)
        self.unread.append(text)

    def aside(self, text: str) -> None:
        self.ledger.say(text, aside=True)
        self.unread.append(text)

    def commit(self, metadata: Any) -> None:
        self.events += self.ledger.commit(metadata)

    def settle(self, text: str) -> None:
        self.events += self.ledger.settle(Message("assistant", text))

    def drop(self, _value: None) -> None:
        self.ledger.drop_open()

    def open(self, name: int) -> None:
        self.number += 1
        call, events = self.ledger.open_call(ToolCall(f"id{name}", f"tool{self.number}", "{}"), self)
        self.calls.append(call)
        self.events += events

    def close(self, which: int) -> None:
        if which < len(self.calls):
            self.events += self.ledger.close_call(self.calls[which], '"done"')

    def add(self, text: str) -> None:
        self.events += self.ledger.add(Message("assistant", text))

    def user(self, text: str) -> None:
        message = Message("user", text)
        self.events.append(MessageAdded(message, self.ledger.conversation.push(message)))

    def took(self, count: int) -> None:
        for _ in range(min(count, len(self.unread))):
            self.ledger.took(len(self.unread.pop(0)))


def course_of(operations: list[tuple[str, Any]], *, record_interrupted: bool = True) -> tuple[Course, list[Item]]:
    start: list[Item] = [Message("system", ""), Message("user", "hi")]
    course = Course(Ledger(History(start), record_interrupted=record_interrupted))
    for name, value in operations:
        course.do(name, value)
    return course, start


def assert_pairs_are_whole(items: list[Item]) -> None:
    for index, item in enumerate(items):
        if isinstance(item, ToolCall):
            result = items[index + 1]
            assert isinstance(result, ToolResult)
            assert (result.tool_call_id, result.tool_name) == (item.tool_call_id, item.tool_name)
    calls = sum(isinstance(item, ToolCall) for item in items)
    assert calls == sum(isinstance(item, ToolResult) for item in items)


@given(operations=st.lists(OPERATIONS, max_size=25), cut=st.integers(0, 100), record=st.booleans())
def test_every_course_leaves_a_whole_conversation_that_its_events_tell(
    operations: list[tuple[str, Any]], cut: int, *, record: bool
) -> None:
    course, start = course_of(operations, record_interrupted=record)
    ledger = course.ledger
    course.events += ledger.interrupt(min(cut, ledger.length))
    course.events += ledger.close_calls()
    items = list(ledger.conversation)
    assert replay(start, course.events) == items
    assert_pairs_are_whole(items)
    assert not [
        item for item in items[2:] if isinstance(item, Message) and is_blank(item.content) and item.role != "user"
    ]
    assert ledger.open is None
    assert ledger.calls == []
    # A second cut at the same place changes nothing.
    assert ledger.interrupt(min(cut, ledger.length)) == []
    assert ledger.close_calls() == []


@given(
    operations=st.lists(
        OPERATIONS.filter(lambda operation: operation[0] not in {"settle", "add", "aside", "drop"}), max_size=25
    ),
    cut=st.integers(0, 100),
)
def test_the_stored_text_is_what_was_said_up_to_the_cut(operations: list[tuple[str, Any]], cut: int) -> None:
    course, _start = course_of(operations)
    ledger = course.ledger
    said = "".join(value for name, value in operations if name == "say")
    upto = min(cut, len(said))
    assert ledger.text == said
    assert ledger.length == len(said)
    ledger.interrupt(upto)
    stored = [item for item in ledger.conversation if isinstance(item, Message) and item.role == "assistant"]
    # Blank stretches are not stored; everything else is, up to the cut and in order.
    assert "".join(item.content for item in stored).replace(" ", "").replace("\u200b", "") == said[:upto].replace(
        " ", ""
    ).replace("\u200b", "")
    # Only the message that was cut is marked as such.
    assert all(item.metadata in (None, {"refusal": True}) for item in stored[:-1])


@given(operations=st.lists(OPERATIONS, max_size=20))
def test_what_is_received_never_passes_what_was_said(operations: list[tuple[str, Any]]) -> None:
    course, _start = course_of(operations)
    assert course.ledger.received + sum(map(len, course.unread)) == course.ledger.length
    assert course.ledger.text[: course.ledger.received] + "".join(course.unread) == course.ledger.text


def test_an_interrupted_text_stands_before_what_the_caller_said_into_it() -> None:
    course, _start = course_of([("say", "ab"), ("user", "a")])
    course.ledger.interrupt(1)
    assert [(item.role, getattr(item, "content", "")) for item in course.ledger.conversation][1:] == [
        ("user", "hi"),
        ("assistant", "a"),
        ("user", "a"),
    ]


def test_a_text_that_began_behind_a_call_does_not_come_between_it_and_its_result() -> None:
    course, _start = course_of([("open", 0), ("say", "ab"), ("close", 0), ("user", "b")])
    course.ledger.interrupt(2)
    assert [item.role for item in course.ledger.conversation] == [
        "system",
        "user",
        "tool_call",
        "tool_result",
        "assistant",
        "user",
    ]


def test_a_call_on_the_stack_is_deferred_and_others_are_closed() -> None:
    course, _start = course_of([("open", 0), ("open", 1)])
    course.calls[0].on_stack = True
    (event,) = course.ledger.close_calls()
    assert isinstance(event, MessageAdded)
    assert event.message == ToolResult("id1", "tool2", CANCELLED_OUTPUT)
    assert course.calls[0].deferred
    assert course.ledger.close_call(course.calls[0], '"real"') != []
    assert_pairs_are_whole(list(course.ledger.conversation))


def test_a_result_without_an_open_call_is_appended() -> None:
    course, _start = course_of([])
    result = ToolResult("x", "x", "1")
    assert course.ledger.add(result) == [MessageAdded(result, 2)]
    assert course.ledger.open_text == ""


def test_open_text_is_what_a_next_speaker_continues() -> None:
    course, _start = course_of([("say", "a"), ("commit", None), ("say", "b"), ("say", "a")])
    assert course.ledger.open_text == "ba"
    course.aside("x")
    assert course.ledger.open_text == "ba"
    course.ledger.drop_open()
    assert course.ledger.open_text == ""


def test_calls_of_one_owner_are_closed_alone() -> None:
    course, _start = course_of([("open", 0)])
    course.ledger.open_call(ToolCall("other", "other", "{}"), "somebody else")
    assert len(course.ledger.close_calls(owner="somebody else")) == 1
    assert len(course.ledger.calls) == 1


def test_many_commits_of_a_long_answer_do_not_join_it_from_all_its_chunks_each_time() -> None:
    """Counted in pieces, not in seconds: after a commit the text is one piece again."""
    ledger = Ledger(History([Message("system", "")]))
    longest = 0
    for number in range(2000):
        ledger.say(f"word {number} ")
        ledger.say("and one. ")
        ledger.commit()
        longest = max(longest, len(ledger.chunks))
    assert longest == 1
    assert ledger.text.startswith("word 0 and one. word 1 ")


PLACES = st.one_of(
    st.tuples(st.just("say"), WORDS),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("open"), st.integers(0, 2)),
    st.tuples(st.just("close"), st.integers(0, 5)),
    st.tuples(st.just("user"), WORDS),
    st.tuples(st.just("take_out"), st.integers(0, 9)),
    st.tuples(st.just("exchange"), st.none()),
)


@given(operations=st.lists(PLACES, max_size=25))
def test_a_cut_text_stands_where_it_began_whatever_came_went_or_ended_meanwhile(
    operations: list[tuple[str, Any]],
) -> None:
    """Before it: what stood there when its first word was said, and the results of the calls among that."""
    conversation = History([Message("system", ""), Message("user", "hi")])
    course = Course(Ledger(conversation))
    earlier: list[Item] = []
    for name, value in operations:
        if name == "take_out":
            users = [item for item in conversation if item.role == "user"]
            if value < len(users):
                _take_out(conversation, users[value])
        elif name == "exchange":
            conversation.put(0, Message("system", "another"))
        else:
            if name == "say" and course.ledger.open is None:
                earlier = list(conversation)
            course.do(name, value)
    spoken = course.ledger.open_text
    cuts = course.ledger.interrupt(course.ledger.length)
    course.ledger.close_calls()
    items = list(conversation)
    assert_pairs_are_whole(items)
    assert len(cuts) == (0 if is_blank(spoken) else 1)
    for cut in cuts:
        assert isinstance(cut, MessageAdded)
        place = next(index for index, item in enumerate(items) if item is cut.message)
        kept = [item for item in earlier[1:] if any(item is other for other in items)]
        before = items[1:place]
        assert [item for item in before if any(item is other for other in kept)] == kept
        others = [item for item in before if not any(item is other for other in kept)]
        calls = [item.tool_call_id for item in kept if isinstance(item, ToolCall)]
        assert all(isinstance(item, ToolResult) and item.tool_call_id in calls for item in others)
        assert sum(isinstance(item, ToolResult) for item in before) == len(calls)


def _take_out(conversation: History, item: Item) -> None:
    index = conversation.index_of(item)
    assert index is not None
    conversation.delete(index)


def test_a_text_that_its_author_settles_as_nothing_is_not_stored_and_cannot_be_cut() -> None:
    course, start = course_of([("say", "ab")])
    assert course.ledger.settle(Message("assistant", " ")) == []
    assert course.ledger.interrupt(0) == []
    assert list(course.ledger.conversation) == start
