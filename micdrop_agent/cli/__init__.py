"""The command ``micdrop-agent``: talk to an agent in a terminal, or from a script.

    arguments ──▶ ChatOptions ──▶ make_agent ──▶ Session ──▶ Screen (text: stdout, all else: stderr)

Exit codes: 0; 1 with one line on stderr when something failed; 2 on bad usage.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final, cast

from micdrop_agent.cli._options import PROGRAM, UsageError, parse
from micdrop_agent.errors import MicdropError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from micdrop_agent.cli._options import ChatOptions

__all__ = ["main"]

FAILED: Final = 1
BAD_USAGE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: What follows the program's name; ``sys.argv[1:]`` if left out.

    Raises:
        SystemExit: Arguments that argparse refuses (code 2), ``--help`` and ``--version`` (0).
    """
    # An answer's failure reaches the user as one line; the library's own log record of it would
    # be a second one, which logging prints by itself when nobody has set it up.
    logging.getLogger("micdrop_agent").addHandler(logging.NullHandler())
    options = parse(arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            cast("Any", stream).reconfigure(errors="replace")
    try:
        return _run(options)
    except UsageError as error:
        return _complain(error, BAD_USAGE)
    except BrokenPipeError:
        # The reader of our text is gone (``| head``): nothing to say, and nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:  # before the session took the signal over
        return _complain(MicdropError("interrupted"), FAILED)
    except (MicdropError, OSError) as error:
        return _complain(error, FAILED)


def _run(options: ChatOptions) -> int:
    import importlib.util

    if options.backend == "trio" and importlib.util.find_spec("trio") is None:
        raise MicdropError('Trio is not installed; run: pip install "micdrop-agent[trio]"')
    import anyio

    from micdrop_agent.cli._session import chat

    return anyio.run(chat, options, backend=options.backend)


def _complain(error: Exception, code: int) -> int:
    from micdrop_agent.cli._screen import one_line

    print(f"{PROGRAM}: error: {one_line(str(error))}", file=sys.stderr)
    return code
