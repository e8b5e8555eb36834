"""The program `outpost-lsp`, also `python -m outpost_lsp`.

Nothing is imported before it is known what was asked for: `--version` starts neither server nor engine.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the program with the process's arguments; the result is its exit status."""
    from outpost_lsp.cli.main import main as run_command_line

    return run_command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
