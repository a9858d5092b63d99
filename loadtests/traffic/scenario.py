"""What a scenario is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from traffic.found import Found
    from traffic.stage import Stage

__all__ = ["Scenario"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A way in which calls come.

    Attributes
    ----------
    about
        What it is, in one line.
    seconds, long_seconds
        How long its main part lasts, in the short and the long form.
    play
        Plays it with so many seconds.
    flags
        Of the service, beside the defaults.
    """

    name: str
    about: str
    seconds: float
    long_seconds: float
    play: Callable[[Stage, float], Found]
    flags: tuple[str, ...] = ()
