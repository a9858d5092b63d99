from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.commands.running import Ask, Running

from topk_bandit.commands.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in this process, with no setting of the service but those that are given, and keeps its words."""
    for name in [name for name in os.environ if name.startswith("TOPK_BANDIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")

    def called(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        with monkeypatch.context() as changed:
            for name, value in variables.items():
                changed.setenv(name, value)
            try:
                status: int | str | None = main([*words])
            except SystemExit as end:
                status = end.code
        return subprocess.CompletedProcess(words, int(status or 0), *capsys.readouterr())

    return called


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    service = Running()
    yield service
    service.stop()


@pytest.fixture
def ask(running: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    monkeypatch.setenv("TOPK_BANDIT_ADDRESS", running.address)
    return Ask(capsys)
