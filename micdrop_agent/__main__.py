"""``python -m micdrop_agent`` is the command ``micdrop-agent``."""

from __future__ import annotations

import sys

from micdrop_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
