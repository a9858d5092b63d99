from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from topk_bandit.process.descriptors import most_connections, raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], most_connections())
"""


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [(256, 1024, 1024, 768), (1024, 1024, 1024, 768), (100, 300, 300, 150), (64, 64, 64, 32)],
)
def test_a_process_takes_what_it_may_have_and_keeps_some_back(
    soft: int, hard: int, raised: int, connections: int
) -> None:
    said = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(soft), str(hard)], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [str(raised), str(connections)]
