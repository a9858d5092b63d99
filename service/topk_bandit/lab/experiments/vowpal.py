"""VowpalWabbit's two ways to choose slates, as players: conditional contextual bandits (CCB) and slates.

Both choose one item for each slot by a contextual bandit that takes one decision at a time. CCB never chooses an item
twice, and learns from one cost for each slot: all slots of a slate get its reward, negated. Slates learn from one cost
for the whole slate, and give every slot items of its own. Here all are offered in each slot, and an item that an
earlier slot took is replaced by the most probable of the others; items dealt out to the slots did no better in 500
rounds on synthetic shops.

Options were chosen there too: epsilon-greedy, SquareCB and softmax, with and without features of slots crossed with
items, and learning rates from 0.5 to 8. Most differences were smaller than their standard errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.optional import import_extra

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topk_bandit.lab.simulation.episodes import ProblemSize, Visit

__all__ = ["CCB_OPTIONS", "SLATES_OPTIONS", "VowpalCcb", "VowpalSlates", "slates_lines"]

FloatArray = NDArray[np.float64]

CCB_OPTIONS = "--epsilon 0.05 --quadratic ca"
SLATES_OPTIONS = "--epsilon 0.05 --quadratic ca --learning_rate 2"

_SEEDS = 2**31


class _Shown(NamedTuple):
    """What was shown: context (C,), items that were offered (E,), places of those shown, and their probabilities."""

    context: FloatArray
    offered: NDArray[np.int32]
    places: list[int]
    probabilities: list[float]


class VowpalCcb:
    """VowpalWabbit's conditional contextual bandit.

    Parameters
    ----------
    slate_size
        K.
    rng
        Seeds VowpalWabbit's exploration.
    options
        Exploration, interactions of the namespaces c (context), a (item) and s (slot), and the like.

    Raises
    ------
    ConfigurationError
        VowpalWabbit is not installed.
    """

    def __init__(self, *, slate_size: int, rng: np.random.Generator, options: str = CCB_OPTIONS) -> None:
        self._slate_size = slate_size
        self._wabbit = _Wabbit(f"--ccb_explore_adf {options}", "CONDITIONAL_CONTEXTUAL_BANDIT", rng)
        self._shown: dict[int, _Shown] = {}

    @classmethod
    def of(cls, size: ProblemSize, rng: np.random.Generator, *, options: str = CCB_OPTIONS) -> VowpalCcb:
        """Return a player for one trial."""
        return cls(slate_size=size.slate_size, rng=rng, options=options)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round."""
        lines = _ccb_lines(visit.context, visit.eligible, [""] * self._slate_size)
        chosen = [slot[0] for slot in self._wabbit.predict(lines)]
        places, probabilities = [place for place, _ in chosen], [probability for _, probability in chosen]
        self._shown[visit.number] = _Shown(visit.context, visit.eligible, places, probabilities)
        return np.asarray(visit.eligible[places], dtype=np.int32)

    def observe(self, number: int, reward: float) -> None:
        """Learn a reward, as that of every slot."""
        context, offered, *decisions = self._shown.pop(number)
        labels = [f"{place}:{-reward:.6f}:{probability:.6f}" for place, probability in zip(*decisions, strict=True)]
        self._wabbit.learn(_ccb_lines(context, offered, labels))

    def close(self, number: int) -> None:
        """Forget the slate."""
        del self._shown[number]


class VowpalSlates:
    """VowpalWabbit's slates.

    Parameters
    ----------
    slate_size
        K.
    rng
        Seeds VowpalWabbit's exploration.
    options
        As for `VowpalCcb`.

    Raises
    ------
    ConfigurationError
        VowpalWabbit is not installed.
    """

    def __init__(self, *, slate_size: int, rng: np.random.Generator, options: str = SLATES_OPTIONS) -> None:
        self._slate_size = slate_size
        self._wabbit = _Wabbit(f"--slates {options}", "SLATES", rng)
        self._shown: dict[int, _Shown] = {}

    @classmethod
    def of(cls, size: ProblemSize, rng: np.random.Generator, *, options: str = SLATES_OPTIONS) -> VowpalSlates:
        """Return a player for one trial."""
        return cls(slate_size=size.slate_size, rng=rng, options=options)

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the slate for this round."""
        offered = [visit.eligible] * self._slate_size
        places, probabilities = _distinct(self._wabbit.predict(slates_lines(visit.context, offered)))
        self._shown[visit.number] = _Shown(visit.context, visit.eligible, places, probabilities)
        return np.asarray(visit.eligible[places], dtype=np.int32)

    def observe(self, number: int, reward: float) -> None:
        """Learn a reward."""
        context, offered, *decisions = self._shown.pop(number)
        labels = [f"{place}:{probability:.6f}" for place, probability in zip(*decisions, strict=True)]
        lines = slates_lines(context, [offered] * self._slate_size, cost=f"{-reward:.6f}", labels=labels)
        self._wabbit.learn(lines)

    def close(self, number: int) -> None:
        """Forget the slate."""
        del self._shown[number]


def slates_lines(
    context: FloatArray, offered: Sequence[Iterable[int]], *, cost: str = "", labels: Sequence[str] | None = None
) -> list[str]:
    """Return the text of a slates example.

    Parameters
    ----------
    context
        Shape (C,).
    offered
        The items of each slot.
    cost
        The slate's; empty when a slate is asked for.
    labels
        For each slot, "place:probability" of what was chosen; None when a slate is asked for.
    """
    actions = [f"slates action {slot} |a i{item}" for slot, items in enumerate(offered) for item in items]
    slots = [f"slates slot {label}|s p{slot}" for slot, label in enumerate(_add_spaces(labels or [""] * len(offered)))]
    return [f"slates shared {cost} |c {_features(context)}", *actions, *slots]


def _ccb_lines(context: FloatArray, offered: Iterable[int], labels: Sequence[str]) -> list[str]:
    actions = [f"ccb action |a i{item}" for item in offered]
    slots = [f"ccb slot {label}|s p{slot}" for slot, label in enumerate(_add_spaces(labels))]
    return [f"ccb shared |c {_features(context)}", *actions, *slots]


def _add_spaces(labels: Sequence[str]) -> list[str]:
    return [f"{label} " if label else "" for label in labels]


def _features(context: FloatArray) -> str:
    return " ".join(f"c{index}:{value:.6f}" for index, value in enumerate(context.tolist()))


def _distinct(slots: Sequence[Sequence[tuple[int, float]]]) -> tuple[list[int], list[float]]:
    """Return what each slot chose, and its probability: a place taken before gives way to the most probable other."""
    places: list[int] = []
    probabilities: list[float] = []
    for first, *others in slots:
        free = [first, *sorted(others, key=lambda other: -other[1])]
        place, probability = next(choice for choice in free if choice[0] not in places)
        places.append(place)
        probabilities.append(probability)
    return places, probabilities


class _Wabbit:
    """A VowpalWabbit with one type of examples."""

    def __init__(self, options: str, label_type: str, rng: np.random.Generator) -> None:
        package = import_extra("vowpalwabbit", "this policy", extra="rivals")
        self._workspace: Any = package.Workspace(f"{options} --quiet --random_seed {int(rng.integers(_SEEDS))}")
        self._label_type = getattr(package.LabelType, label_type)

    def predict(self, lines: list[str]) -> list[list[tuple[int, float]]]:
        """Return places and probabilities of each slot, the place that it chose first."""
        examples = self._workspace.parse(lines, self._label_type)
        slots: list[list[tuple[int, float]]] = self._workspace.predict(examples)
        self._workspace.finish_example(examples)
        return slots

    def learn(self, lines: list[str]) -> None:
        examples = self._workspace.parse(lines, self._label_type)
        self._workspace.learn(examples)
        self._workspace.finish_example(examples)
