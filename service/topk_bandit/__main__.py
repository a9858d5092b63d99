"""The command line: ``topk-bandit``, and ``python -m topk_bandit``."""

from __future__ import annotations

import sys

__all__ = ["main"]

_INCOMPLETE = """\
topk-bandit: {} is missing. In an upgrade from 0.1, pip removes files that other packages of topk-bandit have since.
Once is enough: pip install --force-reinstall --no-deps topk-bandit-domain topk-bandit-client topk-bandit-core
"""


def main() -> int:
    """Run the command; return its exit status."""
    try:
        from topk_bandit.commands.cli import main as run  # noqa: PLC0415 - it takes a while, and may lack what it needs

        return run()
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("topk_bandit."):
            raise
        sys.stderr.write(_INCOMPLETE.format(error.name))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
