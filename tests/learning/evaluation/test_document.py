"""The example in docs/off-policy.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "off-policy.md"


def test_the_example_tells_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    printed = [
        [float(number) for number in re.findall(r"-?\d+\.\d\d", line)] for line in capsys.readouterr().out.split("\n")
    ]
    values = np.array(printed[:-1]).reshape(3, 4, 3)
    mean = np.mean([1.0, 0.5, 0.8, 0.2, 0.9, 0.1])
    for row, truth in zip(values, (1.54, 0.5 * 1.54 + 0.5 * 1.5, 1.6 * mean), strict=True):
        assert (row[:, 1] <= truth).all()
        assert (truth <= row[:, 2]).all()
        assert row[3, 2] - row[3, 1] < 0.5 * (row[0, 2] - row[0, 1])
