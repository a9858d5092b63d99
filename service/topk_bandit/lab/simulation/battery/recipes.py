"""How the battery's shops are put together: one recipe for those that earn by scores, one for lists that are read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.simulation.battery.cascade import CascadeSlates, Reading
from topk_bandit.lab.simulation.battery.customers import (
    Customers,
    category_features,
    draw_factors,
    gather_in_categories,
    make_recognised,
    one_hot,
    random_walk,
    swap_half,
    unrecognisable,
)
from topk_bandit.lab.simulation.battery.outcomes import Clicks, HeavyTailed, Noisy, Outcome, Purchases, level_for_mean
from topk_bandit.lab.simulation.battery.scored import ScoredSlates, discounts
from topk_bandit.lab.simulation.battery.shop import Shop
from topk_bandit.lab.simulation.scenarios import Constant
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.scenarios import Wait
    from topk_bandit.learning.environments import Factors

__all__ = [
    "FILMS",
    "Bernoulli",
    "Change",
    "Contexts",
    "Gaussian",
    "ListRecipe",
    "LogNormal",
    "Pairs",
    "Recipe",
    "Rewards",
    "StudentT",
]

FloatArray = NDArray[np.float64]

FILMS = Reading(5, 0.9, 0.6, 0.85, 0.05, 1.0, 1.0)
"""How people look for a film."""

_LEVEL_SLATES = 2000
_ROUNDS_A_PHASE = 50
_LIST_SLATES = 4000


class Contexts(Enum):
    """What contexts say of customers."""

    RECOGNISED = auto()
    NOISE = auto()
    ONE_HOT = auto()


class Change(Enum):
    """How preferences change."""

    NONE = auto()
    SUDDEN = auto()
    SLOW = auto()


class Pairs(Enum):
    """What items do to each other."""

    NONE = auto()
    RANDOM = auto()
    REDUNDANCY = auto()


class Rewards(Protocol):
    """What scores are turned into, once it is known how far they spread."""

    def outcome(self, scores: FloatArray, spread: float) -> Outcome:
        """Return the outcome.

        Parameters
        ----------
        scores
            Of random slates, shape (A,).
        spread
            From the mean score of random slates to that of the best fixed slate.
        """
        ...


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Random slates earn `offset` on average, the best fixed slate `unit` more; `noise` is in units."""

    offset: float = 2.0
    unit: float = 1.0
    noise: float = 1.0

    def outcome(self, scores: FloatArray, spread: float) -> Outcome:
        """See `Rewards.outcome`."""
        scale = self.unit / spread
        return Noisy(self.offset - scale * float(scores.mean()), scale, self.noise * self.unit)


@dataclass(frozen=True, slots=True)
class StudentT:
    """As `Gaussian`, with the noise of Student's t."""

    offset: float = 0.0
    unit: float = 1.0
    noise: float = 1.0
    freedom: float = 2.5

    def outcome(self, scores: FloatArray, spread: float) -> Outcome:
        """See `Rewards.outcome`."""
        scale = self.unit / spread
        return HeavyTailed(self.offset - scale * float(scores.mean()), scale, self.noise * self.unit, self.freedom)


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Random slates are clicked on with this chance on average; the best fixed slate has `logits` more."""

    chance: float
    logits: float = 1.0

    def outcome(self, scores: FloatArray, spread: float) -> Outcome:
        """See `Rewards.outcome`."""
        scale = self.logits / spread
        return Clicks(level_for_mean(self.chance, scores, lambda level: Clicks(level, scale)), scale)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Purchases: as `Bernoulli`, of log-normal amounts with a mean."""

    chance: float = 0.2
    logits: float = 1.0
    amount: float = 30.0
    log_deviation: float = 1.0

    def outcome(self, scores: FloatArray, spread: float) -> Outcome:
        """See `Rewards.outcome`."""
        scale = self.logits / spread

        def of_level(level: float) -> Outcome:
            return Purchases(level, scale, self.amount, self.log_deviation)

        return of_level(level_for_mean(self.chance * self.amount, scores, of_level))


@dataclass(frozen=True, slots=True)
class Recipe:
    """A shop that earns by scores.

    Attributes
    ----------
    title
        What tables call it.
    n_customers
        How many different customers come by.
    change
        How preferences change: SUDDEN half way, SLOW with `half_life`.
    half_life
        After so many rounds of slow change factors are correlated by 1/2 with what they were.
    main_effect
        Standard deviation of what customers bring to any slate, in spreads of the slates.
    candidates
        So many items can be shown to a request; None for all.
    categories
        Items are of so many categories, and the shop sends that of each; None for items that are all different.
    own
        Share of the variance of items' factors that is not their category's.
    """

    title: str
    n_items: int = 50
    slate_size: int = 5
    n_customers: int = 2000
    rewards: Rewards = field(default_factory=Gaussian)
    contexts: Contexts = Contexts.RECOGNISED
    pairs: Pairs = Pairs.NONE
    change: Change = Change.NONE
    half_life: float = 4000.0
    main_effect: float = 0.0
    wait: Wait = field(default_factory=Constant)
    candidates: int | None = None
    categories: int | None = None
    own: float = 0.1

    def build(self, name: str, *, seed: int, rounds: int, factors: Factors | None = None) -> Shop:
        """Return the shop of a seed, with a life of so many rounds."""
        rng = np.random.default_rng([seed, 0])
        drawn = draw_factors(factors, rng, n_items=self.n_items, n_users=self.n_customers)
        features = None
        if self.categories is not None:
            of_items = rng.integers(self.categories, size=len(drawn.items))
            drawn = drawn._replace(items=gather_in_categories(drawn.items, of_items, own=self.own))
            features = category_features(of_items)
        customers = self._customers(drawn.users, rng)
        slates = ScoredSlates(
            drawn.items[None], customers, discounts(self.slate_size), Noisy(), self._pair_scores(drawn.items, rng)
        )
        candidates = None if self.candidates is None else min(self.candidates, slates.n_items)
        plain = Shop(name, slates, self.wait, rounds, candidates, features)
        spread = plain.spread
        outcome = self.rewards.outcome(_scores_of_random(slates, rng), spread)
        main = self.main_effect * spread * _standard(drawn.users @ rng.normal(size=drawn.users.shape[1]))
        items = self._change_items(drawn.items, rng, rounds)
        return replace(
            plain,
            slates=replace(slates, items=items, outcome=outcome, main_effects=main if self.main_effect else None),
        )

    def _customers(self, users: FloatArray, rng: np.random.Generator) -> Customers:
        match self.contexts:
            case Contexts.RECOGNISED:
                return make_recognised(users)
            case Contexts.NOISE:
                return unrecognisable(users, rng)
            case Contexts.ONE_HOT:
                return one_hot(users)

    def _pair_scores(self, items: FloatArray, rng: np.random.Generator) -> FloatArray | None:
        """Return what pairs are worth: they spread slates as much as the items alone do, or more."""
        deviation = float(items.std(axis=0).max()) * float(discounts(self.slate_size).sum())
        match self.pairs:
            case Pairs.NONE:
                return None
            case Pairs.RANDOM:
                above = np.triu(rng.normal(scale=0.3 * deviation, size=(len(items), len(items))), 1)
                return np.asarray(above + above.T)
            case Pairs.REDUNDANCY:
                unit = items / np.linalg.norm(items, axis=1, keepdims=True)
                return np.asarray(-0.2 * deviation * (unit @ unit.T))

    def _change_items(self, items: FloatArray, rng: np.random.Generator, rounds: int) -> FloatArray:
        match self.change:
            case Change.NONE:
                return items[None]
            case Change.SUDDEN:
                return swap_half(items, rng)
            case Change.SLOW:
                n_phases = max(rounds // _ROUNDS_A_PHASE, 2)
                return random_walk(items, rng, n_phases=n_phases, half_life=self.half_life * n_phases / rounds)


@dataclass(frozen=True, slots=True)
class ListRecipe:
    """A shop whose lists are read from the top; see `CascadeSlates`.

    Attributes
    ----------
    reading
        Its noise is in spreads of the slates, of all that a reward differs from its expectation by.
    """

    title: str
    n_items: int = 50
    n_customers: int = 300
    reading: Reading = FILMS
    attraction: tuple[float, float] = (-1.5, 4.0)
    wait: Wait = field(default_factory=Constant)

    def build(self, name: str, *, seed: int, rounds: int, factors: Factors | None = None) -> Shop:
        """Return the shop of a seed, with a life of so many rounds."""
        rng = np.random.default_rng([seed, 0])
        drawn = draw_factors(factors, rng, n_items=self.n_items, n_users=self.n_customers)
        silent = self.reading._replace(noise=0.0)
        slates = CascadeSlates(drawn.items[None], make_recognised(drawn.users), silent, self.attraction)
        plain = Shop(name, slates, self.wait, rounds)
        wanted = self.reading.noise * plain.spread
        more = np.sqrt(max(wanted**2 - _variance_of_clicks(slates, rng), 0.0))
        return replace(plain, slates=replace(slates, reading=silent._replace(noise=float(more))))


def _variance_of_clicks(slates: CascadeSlates, rng: np.random.Generator) -> float:
    """Return the mean variance of rewards of random slates, without noise."""
    items, residuals = np.arange(slates.n_items), np.empty(_LIST_SLATES)
    rankings = random_rankings(items, slate_size=slates.slate_size, count=_LIST_SLATES, rng=rng)
    customers = rng.integers(len(slates.customers.contexts), size=_LIST_SLATES)
    for place, (customer, ranking) in enumerate(zip(customers.tolist(), rankings, strict=True)):
        earned = slates.draw(customer, 0, ranking, rng)
        residuals[place] = earned.reward - slates.expect_rewards(customer, 0, ranking[None])[0]
    return float(residuals.var())


def _scores_of_random(slates: ScoredSlates, rng: np.random.Generator) -> FloatArray:
    items = np.arange(slates.n_items)
    rankings = random_rankings(items, slate_size=slates.slate_size, count=_LEVEL_SLATES, rng=rng)
    customers = rng.integers(len(slates.customers.contexts), size=_LEVEL_SLATES)
    pairs = zip(customers.tolist(), rankings, strict=True)
    return np.array([slates.scores(customer, 0, ranking[None])[0] for customer, ranking in pairs])


def _standard(values: FloatArray) -> FloatArray:
    return np.asarray((values - values.mean()) / values.std())
