"""The synchronous client is what the generator makes of the asynchronous one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import generate_client

SCRIPT = Path(generate_client.__file__)


def check(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)


def test_the_synchronous_client_is_up_to_date() -> None:
    run = check(SCRIPT)
    assert (run.returncode, run.stderr) == (0, "")


def test_an_edit_of_one_side_alone_is_noticed(tmp_path: Path) -> None:
    for path in generate_client.PACKAGE.glob("*synchronous*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    edited = tmp_path / "synchronous_studies.py"
    generated = edited.read_text()
    edited.write_text(generated.replace("def get_study", "def read_study"))
    assert generate_client.main(["--check"], folder=tmp_path) == 1
    assert "def read_study" in edited.read_text()
    assert generate_client.main([], folder=tmp_path) == 0
    assert edited.read_text() == generated
    assert generate_client.main(["--check"], folder=tmp_path) == 0


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in generate_client.REWRITES])
def test_every_rewrite_is_needed(pattern: str) -> None:
    sources = [(generate_client.PACKAGE / name).read_text() for name in generate_client.SOURCES]
    assert any(re.search(pattern, source) for source in sources)


def test_nothing_asynchronous_is_left() -> None:
    for name in generate_client.SOURCES:
        code = (generate_client.PACKAGE / name.replace("asynchronous", "synchronous")).read_text()
        assert not re.search(r"async|\bawait\b", code.partition("\n")[2], flags=re.IGNORECASE)
