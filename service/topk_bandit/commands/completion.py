"""Completion in a shell: the script that a shell reads, and the answers that the script asks for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from topk_bandit.commands.printing import print_lines

if TYPE_CHECKING:
    import argparse

__all__ = ["DESCRIPTION", "add_arguments", "answer"]

SHELLS = ("bash", "zsh", "fish")
DESCRIPTION = """\
Print what a shell reads to complete the words and flags of this command. For the shell that runs:

  bash  source <(topk-bandit completion bash)
  zsh   source <(topk-bandit completion zsh)
  fish  topk-bandit completion fish | source
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags, and a `run` that returns an exit status."""
    parser.add_argument("shell", choices=SHELLS, help="which shell")
    parser.set_defaults(run=_print)


def answer(parser: argparse.ArgumentParser) -> None:
    """End the process with what could come next on the command line, if it is a shell that asks."""
    import argcomplete  # noqa: PLC0415 - serve need not wait for it

    argcomplete.autocomplete(parser)


def _print(given: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415

    print_lines([shellcode(["topk-bandit"], shell=given.shell)], sys.stdout)
    return 0
