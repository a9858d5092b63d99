"""Costs of one's own machine, from what the benchmark `fleet-costs` wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConfigurationError, InvalidArgumentError
from topk_bandit.lab.fleet.costs import Costs

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_costs"]

_SECONDS = ("recommend", "reward", "look", "shown", "rewarded", "refit", "load", "store_call", "sync")


def read_costs(path: Path) -> Costs:
    """Return the costs in a file of results of the benchmarks.

    Raises
    ------
    ConfigurationError
        The file can't be read.
    InvalidArgumentError
        Naming ``--costs``: it is another file, or has a cost that is none.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        figures = {one["key"]: float(one["value"]) for one in told["results"]["fleet-costs"]["figures"]}
        seconds = {name: figures[name] / 1e3 for name in (*_SECONDS, "empty")}
        between = round(figures["rewards"])
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgumentError("--costs", f"{path} has no result of fleet-costs: {error}") from None
    if min(*seconds.values(), between) <= 0.0:
        raise InvalidArgumentError("--costs", f"{path} has a cost that is not above 0: the machine was too busy")
    empty = seconds.pop("empty")
    return Costs(**seconds, rewards_between=between, answer=empty / 2.0, refuse=empty)
