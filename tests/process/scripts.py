"""Scripts of a process of their own, whose log is written to the end however long that takes."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import PATIENCE

__all__ = ["run_script"]

_PATIENT = f"from topk_bandit.process import log_writer\nlog_writer.FLUSH_SECONDS = {PATIENCE}\n"


def run_script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _PATIENT + text, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
