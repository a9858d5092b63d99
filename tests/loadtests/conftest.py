from __future__ import annotations

import sys
from pathlib import Path

# The benchmarks are programs of one folder, which import each other by their names.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "loadtests"))
