"""``python -m consumer``: the same as the command ``vertex-budget``.

Imports nothing until it runs: a handler process started by spawn imports its parent's main module
again, and must not load the command line and the settings with it.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    from consumer.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
