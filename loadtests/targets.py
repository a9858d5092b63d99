"""What the figures are held to."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from figures import Figure, Outcome

__all__ = ["Target", "Targets", "missed", "read_targets"]

Targets = dict[str, "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a figure: exactly one of the two is set."""

    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        """Refuse a target that bounds nothing, or twice."""
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a target has either at_least or at_most")

    @property
    def bound(self) -> float:
        """The bound, whichever it is."""
        return self.at_least if self.at_least is not None else self.at_most or 0.0

    def is_met_by(self, value: float) -> bool:
        """Return whether a value is within the bound; NaN never is."""
        return value >= self.bound if self.at_least is not None else value <= self.bound


def read_targets(path: Path) -> dict[str, Targets]:
    """Return the targets of each benchmark, by the figures' keys."""
    written = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: {key: Target(**bound) for key, bound in bounds.items()} for name, bounds in written.items()}


def missed(outcome: Outcome, targets: Targets) -> list[Figure]:
    """Return the figures that miss their target; what an absent peer would have given is not missed.

    Raises
    ------
    KeyError
        A target is for a figure that the benchmark does not have, though no peer is absent.
    """
    figures = {figure.key: figure for figure in outcome.figures}
    held = [key for key in targets if key in figures or not outcome.absent]
    return [figures[key] for key in held if not targets[key].is_met_by(figures[key].value)]
