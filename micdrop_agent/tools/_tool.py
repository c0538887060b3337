"""Tools: functions that the model may call, with the schema that says how.

    @tool ──┐                      arguments (JSON text)
    Tool ───┼─▶ Plan ─▶ parameters       │
    from_schema ┘                  Tool.bind ─▶ BoundCall ─▶ invoke(agent)
                                         └─▶ ToolInputError, in words for the model

1. Whatever the model writes, ``bind`` returns a call or raises ``ToolInputError``
   (tests/test_tools_bind.py).
2. ``parameters`` of a tool with ``strict`` true is accepted by a server in strict mode
   (tests/test_tools_schema.py).
3. What a tool declares never changes: the same objects each time (tests/test_tools_tool.py).
"""

from __future__ import annotations

import copy
import inspect
import logging
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, Unpack, cast

import attrs

from micdrop_agent.errors import ToolInputError
from micdrop_agent.options import check_flag, check_seconds, check_text, validated
from micdrop_agent.tools._callables import innermost, is_async, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from micdrop_agent.tools._plan import Plan
    from micdrop_agent.tools._schema import Schema

Filler: TypeAlias = "str | Sequence[str] | Callable[[], str | None] | None"

ToolKind = Literal["plain", "end_call", "semantic_turn", "ignore_user_noise"]
OnCancel = Literal["cancel", "finish", "detach"]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
logger: Final = logging.getLogger("micdrop_agent.tools")
_undescribed: Final[set[str]] = set()
"""Names of tools whose missing description was reported: once is enough for a process."""
_NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


class ToolOptions(TypedDict, total=False):
    """What every way of making a tool takes besides its function and its parameters."""

    skip_answer: bool
    emit_output: bool
    timeout: float | None
    on_cancel: OnCancel
    thread: bool
    filler: Filler
    filler_after: float


def _check_name(_: object, __: object, name: Any) -> None:
    check_text("the name of a tool", name)
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"a tool cannot be named {name!r}: 1 to 64 letters, digits, _ and - are allowed")


def _check_filler(_: object, __: object, value: Any) -> None:
    if value is None or callable(value):
        return
    texts: Any = [value] if isinstance(value, str) else value
    if type(texts) not in (list, tuple) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise TypeError(f"filler must be a string, several of them, or a function that returns one, not {value!r}")


def _check_execute(_: object, __: object, value: Any) -> None:
    if value is None:
        return
    if not callable(value):
        raise TypeError(f"execute must be a function, not {value!r}")
    inner = innermost(value)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise TypeError(f"{name_of(value)} yields; a tool returns its output")


@attrs.frozen(kw_only=True, eq=False)
class Tool:
    """A function that the model may call.

    Made by ``@tool`` from a function's signature, by ``Tool(input=SomeClass, …)`` from an attrs
    class, dataclass, TypedDict or pydantic model, or by ``Tool.from_schema`` from JSON Schema. Without ``input``
    it takes no arguments. Compared by identity.

    Raises:
        TypeError: An option of the wrong type, or a signature or class that cannot be read.
        ValueError: A bad name, an option out of range, or ``thread`` with an async function.

    Source: Micdrop's ``Tool`` (name, description, inputSchema, execute, skipAnswer, emitOutput).
    """

    name: str = attrs.field(validator=_check_name)
    """Letters, digits, ``_`` and ``-``, 64 at most: what every provider takes."""

    description: str = attrs.field(default="")
    """What the model reads to decide on a call; by default from the docstring."""

    execute: Callable[..., Any] | None = attrs.field(default=None, validator=_check_execute)
    """Sync or async; None for a tool that only signals something."""

    input: type | None = attrs.field(default=None, repr=False)
    """The class whose fields are the arguments; ``execute`` gets one instance."""

    skip_answer: bool = attrs.field(default=False, validator=validated(check_flag))
    """The turn ends with this call: the model says nothing more."""

    emit_output: bool = attrs.field(default=False, validator=validated(check_flag))
    """A ``ToolCalled`` event with parameters and output is emitted after it ran."""

    timeout: float | None = attrs.field(default=None, validator=validated(check_seconds, zero=False, none=True))
    """Seconds after which it is given up; None for no limit."""

    on_cancel: OnCancel = attrs.field(default="cancel")
    """What an interruption does to a running call: cancel it, let it finish unheard, or let it go on and deliver its
    result later (``ToolFinishedLate``)."""

    thread: bool = attrs.field(default=False, validator=validated(check_flag))
    """Run it in a worker thread, for functions that block."""

    filler: Filler = attrs.field(default=None, validator=_check_filler)
    """Said once in an answer when the tool takes long: a text, several to take in turn, or a function that
    returns one."""

    filler_after: float = attrs.field(default=0.8, validator=validated(check_seconds))
    """Seconds after which that is said, if the tool still runs."""

    kind: ToolKind = attrs.field(default="plain")
    """Which built-in control tool this is."""

    _plan: Plan | None = attrs.field(default=None, alias="_plan", repr=False)

    parameters: Schema = attrs.field(init=False, repr=False)
    """JSON Schema as sent to the model: in strict form where there is one."""

    loose_parameters: Schema = attrs.field(init=False, repr=False)
    """JSON Schema with optional properties and defaults, for servers without strict mode."""

    strict: bool = attrs.field(init=False, repr=False)
    """Whether ``parameters`` is in strict form (a free-form map, for one, has none)."""

    declaration: Mapping[str, Any] = attrs.field(init=False, repr=False)
    """``name``, ``description``, ``parameters`` and ``strict``; the same object each time."""

    encoded: dict[str, Any] = attrs.field(init=False, repr=False, factory=dict[str, Any])
    """Where a provider keeps this tool as its requests have it, by a key of its own."""

    def __attrs_post_init__(self) -> None:
        # What reads signatures and schemas is imported when there is a tool, not with the package.
        from micdrop_agent.tools._strict import open_form, strict_form

        self._check_choices()
        plan = self._plan or self._make_plan()
        strict = strict_form(plan.schema)
        text = self.description.strip() or _described(self.execute) or _described(self.input)
        if not text and self.name not in _undescribed:
            _undescribed.add(self.name)
            logger.warning(
                "the tool %r has no description, so the model cannot know when to call it; "
                "write a docstring, or give description=",
                self.name,
            )
        parameters = open_form(plan.schema) if strict is None else strict
        declaration = {
            "name": self.name,
            "description": text,
            "parameters": parameters,
            "strict": strict is not None,
        }
        facts = {
            "_plan": plan,
            "description": text,
            "parameters": parameters,
            "loose_parameters": plan.schema,
            "strict": strict is not None,
            "declaration": declaration,
        }
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    def _check_choices(self) -> None:
        check_text("description", self.description)
        if self.on_cancel not in {"cancel", "finish", "detach"}:
            raise ValueError(f'on_cancel must be "cancel", "finish" or "detach", not {self.on_cancel!r}')
        if self.kind not in {"plain", "end_call", "semantic_turn", "ignore_user_noise"}:
            raise ValueError(f"kind must be that of a control tool or plain, not {self.kind!r}")
        if self.thread and self.is_async:
            raise ValueError(f"{self.name} is async: thread=True is for blocking functions")

    def _make_plan(self) -> Plan:
        from micdrop_agent.tools._plan import plan_class, plan_schema

        if self.input is not None:
            return plan_class(self.input, self.execute)
        return plan_schema(self.name, _NO_ARGUMENTS, self.execute)

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        execute: Callable[..., Any] | None = None,
        **options: Unpack[ToolOptions],
    ) -> Tool:
        """A tool whose parameters are JSON Schema written by hand.

        Args:
            name: The tool's name.
            description: What the model reads.
            parameters: An object schema, or a map of property to schema, where ``nullable``,
                ``optional`` and ``default`` say what may be left out.
            execute: Gets one dict (checked, with defaults), and the agent if it wants it.
            **options: As for ``Tool``.

        Raises:
            TypeError: ``parameters`` is not a map, or an option has the wrong type.
            ValueError: A bad name, or parameters that are not an object schema.
        """
        from micdrop_agent.tools._plan import plan_schema

        try:
            plan = plan_schema(name, parameters, execute)
            return Tool(name=name, description=description, execute=execute, _plan=plan, **options)
        except RecursionError as error:
            raise ValueError(f"{name}: the schema refers to itself without end") from error

    @property
    def is_async(self) -> bool:
        """Whether ``execute`` is an async function (one that only returns an awaitable may not show)."""
        return self.execute is not None and is_async(self.execute)

    @property
    def control(self) -> bool:
        """Whether a call ends the turn: a control tool, or one with ``skip_answer``."""
        return self.skip_answer or self.kind != "plain"

    def for_deps(self, deps: object) -> Tool:
        """This tool for an agent with ``deps``: an argument of the type of ``deps`` is filled with them, not by the model."""
        plan = None if self._plan is None or deps is None else self._plan.for_deps(type(deps))
        return self if plan is None else attrs.evolve(self, _plan=plan)

    def prepare(self) -> None:
        """Import now what the first call would import (cattrs), for instance while warming up."""
        if self._plan is not None:
            self._plan.prepare()

    def bind(self, arguments: str | Mapping[str, Any] | None) -> BoundCall:
        """Read the model's arguments. Empty text and ``null`` mean no arguments.

        Args:
            arguments: JSON text as the model wrote it, or the decoded object.

        Raises:
            ToolInputError: They do not fit; the text says everything that is wrong.
        """
        if self.kind != "plain":
            # Models like to give a reason; it must not keep a call from being ended.
            return BoundCall(self, {}, {})
        try:
            from micdrop_agent.tools._json import decode_arguments

            return self._bind(decode_arguments(self.name, arguments))
        except RecursionError as error:
            raise ToolInputError(f"The arguments of {self.name} are nested too deeply.") from error

    def _bind(self, decoded: dict[str, Any]) -> BoundCall:
        from micdrop_agent.tools._check import check

        plan = cast("Plan", self._plan)
        given, parameters, problems = check(plan.schema, decoded)
        value: Any = None
        if not problems:
            # A free-form part reaches the tool as it is, and must not be that of ``parameters``.
            own = given if self.strict else copy.deepcopy(given)
            value, problems = plan.value_of(own, parameters)
        if problems:
            raise ToolInputError(
                f"The arguments of {self.name} are wrong. {'; '.join(problems)}. "
                "Call it again with corrected arguments."
            )
        return BoundCall(self, parameters, value)


@attrs.frozen(eq=False)
class BoundCall:
    """A tool with arguments that fit, ready to be run once."""

    tool: Tool

    parameters: dict[str, Any]
    """The arguments as JSON values, as the model gave them, with the defaults filled in."""

    _value: Any = attrs.field(repr=False)

    def invoke(self, agent: object = None, *, turn: object = None) -> Any:
        """Call the function; what an async one returns has still to be awaited.

        Args:
            agent: What a parameter for the agent gets; its ``deps`` are for the parameter that wants them.
            turn: What a parameter for the turn gets.
        """
        plan = cast("Plan", self.tool._plan)  # pyright: ignore[reportPrivateUsage] - one unit with Tool
        return plan.call(self._value, {"agent": agent, "turn": turn, "deps": getattr(agent, "deps", None)})


def _described(source: Any) -> str:
    from micdrop_agent.tools import _docstring

    if isinstance(source, type):
        text = _docstring.summary(source.__doc__)
        # A dataclass without a docstring gets its signature as one.
        return "" if text.startswith(f"{source.__name__}(") else text
    if source is None:
        return ""
    return _docstring.summary(innermost(source).__doc__)
