"""Costs from what the benchmark wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.lab.fleet.costs_file import read_costs

if TYPE_CHECKING:
    from pathlib import Path

MILLISECONDS = {
    "empty": 0.4, "recommend": 6.0, "reward": 2.0, "look": 1.5, "shown": 0.3, "rewarded": 0.1, "refit": 80.0,
    "rewards": 128.0, "load": 20.0, "store_call": 0.3, "sync": 1.0,
}  # fmt: skip


def written(path: Path, name: str = "fleet-costs", **changed: float) -> Path:
    figures = [{"key": key, "value": value} for key, value in {**MILLISECONDS, **changed}.items()]
    path.write_text(json.dumps({"results": {name: {"figures": figures}}}))
    return path


def test_milliseconds_of_the_benchmark_are_costs(tmp_path: Path) -> None:
    costs = read_costs(written(tmp_path / "costs.json"))
    assert costs.rewards_between == 128
    assert costs.asked == pytest.approx(0.008)
    assert costs.following == pytest.approx(0.0004 + 0.08 / 128)
    assert (costs.answer, costs.refuse) == pytest.approx((0.0002, 0.0004))


def test_what_is_no_result_of_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read"):
        read_costs(tmp_path / "none.json")
    with pytest.raises(InvalidArgumentError, match="no result of fleet-costs"):
        read_costs(written(tmp_path / "other.json", name="latency"))
    with pytest.raises(InvalidArgumentError, match="the machine was too busy"):
        read_costs(written(tmp_path / "busy.json", look=-0.2))
