"""The tools of one agent: by name, in the order in which they were added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from micdrop_agent.tools._decorator import tool
from micdrop_agent.tools._tool import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class ToolSet:
    """An ordered set of tools, in which every name stands for one tool.

    Args:
        tools: Tools, or functions to make tools of.
        deps: What the application gave the agent, for parameters of its type.

    Raises:
        ValueError: Two of them have one name.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = (), deps: object = None) -> None:
        self._deps = deps
        self._by_name: dict[str, Tool] = {}
        self._version = 0
        for each in tools:
            self.add(each)

    @property
    def version(self) -> int:
        """Grows with every change, so that what was made of the tools can be kept until then."""
        return self._version

    def add(self, new: Tool | Callable[..., Any]) -> Tool:
        """Append a tool; a plain function becomes one. Returns the tool.

        Raises:
            TypeError: It is neither a tool nor a function that could be one.
            ValueError: There is a tool of that name already (providers refuse a second one).
        """
        added = (new if isinstance(new, Tool) else tool(new)).for_deps(self._deps)
        if added.name in self._by_name:
            raise ValueError(f"there is a tool named {added.name!r} already; remove it first")
        self._by_name[added.name] = added
        self._version += 1
        return added

    def use_deps(self, deps: object) -> None:
        """Give parameters of the type of ``deps`` what the application gave, as far as they get nothing yet."""
        if deps is None or self._deps is not None:
            return
        self._deps = deps
        self._by_name = {name: each.for_deps(deps) for name, each in self._by_name.items()}
        self._version += 1

    def remove(self, name: str) -> None:
        """Remove the tool of that name; an unknown name is ignored."""
        if self._by_name.pop(name, None) is not None:
            self._version += 1

    def get(self, name: str) -> Tool | None:
        """The tool of that name, if there is one."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[Tool]:
        # A copy: a tool may add or remove tools while it runs.
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, Tool):
            return self._by_name.get(item.name) is item
        return item in self._by_name

    def __repr__(self) -> str:
        return f"ToolSet({', '.join(self._by_name)})"
