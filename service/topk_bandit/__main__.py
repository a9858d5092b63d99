"""Run the command line: ``python -m topk_bandit``."""

import sys

from topk_bandit.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
