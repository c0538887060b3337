"""Finds vectors and cases, those of the project or those in a folder that is given, each one a test of its own.

A file that cannot be understood is a test that fails: it must not keep the others from being run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CASE_FILES = ("wire.json", "request.json", "scenario.json")


@attrs.frozen
class Broken:
    """Stands for a file that could not be turned into tests.

    Args:
        error: Why.
    """

    error: Exception


def read(path: Path, *members: str) -> dict[str, Any]:
    """The object in a file.

    Args:
        path: The file.
        *members: What the object must have.

    Raises:
        ValueError: It is no file, no JSON, no object, or a member is missing; the message has the file's name.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path.name}: an object is wanted, not {type(data).__name__}")  # noqa: TRY004 - one way to be wrong
    if missing := [name for name in members if name not in data]:
        raise ValueError(f"{path.name}: it has no {', '.join(missing)}")
    return data


def understood(path: Path, *members: str) -> dict[str, Any]:
    """As ``read``; a file that cannot be understood is the failure of this test, in one line."""
    try:
        return read(path, *members)
    except ValueError as error:
        words = str(error)
    pytest.fail(f"not understood: {words}", pytrace=False)


def roots(given: Path | None, *ours: Path) -> list[Path]:
    """The folders to search.

    Raises:
        pytest.UsageError: The folder that was given is none.
    """
    if given is None:
        return list(ours)
    if not given.is_dir():
        raise pytest.UsageError(f"there is no folder {given}")
    return [given.resolve()]


def case_folders(folders: list[Path]) -> list[Path]:
    """All folders with a case in them, at any depth; a folder that is a case itself counts."""
    found = {path.parent for folder in folders for name in CASE_FILES for path in folder.rglob(name)}
    if not found:
        raise pytest.UsageError(f"there are no cases in {', '.join(map(str, folders))}")
    return sorted(found, key=lambda folder: (folder.name, folder))


def unknown_folders(folders: list[Path]) -> list[Path]:
    """Folders that describe a case, and have no file that could be played."""
    described = {path.parent for folder in folders for path in folder.rglob("case.md")}
    return sorted(folder for folder in described if not any((folder / name).exists() for name in CASE_FILES))


def vector_files(folders: list[Path]) -> dict[str, Path]:
    """All vectors, by ``area/name``."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.json")):
            if path.name != "index.json":
                found[path.relative_to(folder).with_suffix("").as_posix()] = path
    if not found:
        raise pytest.UsageError(f"there are no vectors in {', '.join(map(str, folders))}")
    return found


def each(paths: list[Path], params: Callable[[Path], list[Any]], arity: int) -> Iterator[Any]:
    """The test parameters of every path; one that fails if there is an error in making them.

    Args:
        paths: What to make them of.
        params: Makes the parameters of one.
        arity: How many arguments the test takes.
    """
    for path in paths:
        try:
            found = params(path)
        except Exception as error:  # noqa: BLE001  # it is raised again by the test
            yield pytest.param(*[Broken(error)] * arity, id=f"{path.name}-broken")
        else:
            yield from found


def whole(value: Any) -> Any:
    """``value``; if it stands for a broken file, that is the failure of this test."""
    if isinstance(value, Broken):
        pytest.fail(f"not understood: {type(value.error).__name__}: {value.error}", pytrace=False)
    return value
