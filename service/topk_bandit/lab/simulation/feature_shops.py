"""One shop whose customers are described in several ways: as named features in one unit or another, or as a vector.

What customers prefer depends on their age, their country, whether they are members, and the logarithm of their basket.
The expert's vector has exactly these, centred and scaled. A telling that is as good lets the bandit learn as soon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.bandits import DEFAULT_EXPLORATION
from topk_bandit.domain.features import Boolean, Categorical, Feature, Features, Numeric, Vector, width_of
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.encoding import Encoder
from topk_bandit.learning.kendall import adaptive_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.state_changes import change_contexts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.domain.features import FeatureKind, FeatureSchema, FeatureValue

__all__ = ["TELLINGS", "Customer", "FeatureShop", "Played", "Telling", "play"]

FloatArray = NDArray[np.float64]

COUNTRIES = ("DE", "FR", "PL", "IT")
N_ITEMS, SLATE_SIZE = 20, 4
_NOISE = 0.5
_LOG_BASKET = (3.5, 0.8)
_AGE = (18.0, 90.0)
_DISCOUNTS = 1.0 / np.log2(np.arange(2, SLATE_SIZE + 2))


class Customer(NamedTuple):
    """Who comes by."""

    age: float
    basket: float
    member: bool
    country: str

    @property
    def vector(self) -> FloatArray:
        """What an expert makes of it: age, logarithm of the basket, member and country, each of mean square 1."""
        age = (self.age - 0.5 * sum(_AGE)) / ((_AGE[1] - _AGE[0]) / math.sqrt(12.0))
        basket = (math.log(self.basket) - _LOG_BASKET[0]) / _LOG_BASKET[1]
        country = [float(self.country == one) for one in COUNTRIES]
        return np.array([age, basket, 1.0 if self.member else -1.0, *country]) / 2.0


@dataclass(frozen=True, slots=True, eq=False)
class FeatureShop:
    """What items are worth: `worth` (n, 1 + 7) times a constant and the expert's vector."""

    worth: FloatArray

    @classmethod
    def draw(cls, rng: np.random.Generator) -> FeatureShop:
        """Return a shop whose items differ as much for all customers as by customer."""
        return cls(rng.normal(size=(N_ITEMS, 8)) * ([0.7] + [1.0] * 7))

    def customer(self, rng: np.random.Generator) -> Customer:
        """Return who comes by next."""
        age, basket = rng.uniform(*_AGE), rng.lognormal(*_LOG_BASKET)
        return Customer(float(age), float(basket), bool(rng.random() < 0.4), str(rng.choice(COUNTRIES)))

    def utilities(self, customer: Customer) -> FloatArray:
        """Return what each item is worth to a customer, shape (n,)."""
        return np.asarray(self.worth @ np.append(1.0, customer.vector))


def _features(**values: FeatureValue) -> Features:
    return Features.of(values)


class Telling(NamedTuple):
    """A way to tell of customers: by a schema, or as a vector where that is None."""

    schema: FeatureSchema | None
    tell: Callable[[Customer], Features | FloatArray]


_COUNTRY, _MEMBER = Feature("country", Categorical(COUNTRIES)), Feature("member", Boolean())


def _tell_basket(basket: Numeric, value: Callable[[float], float], **more: FeatureValue) -> Telling:
    """Return a telling with the basket as this value of it, and with features that are the same in all requests."""
    kinds: Mapping[type, FeatureKind] = {
        float: Numeric(),
        bool: Boolean(),
        str: Categorical(buckets=4),
        tuple: Vector(3),
    }
    constants = tuple(Feature(name, kinds[type(same)]) for name, same in more.items())
    schema = (Feature("age", Numeric()), Feature("basket", basket), _MEMBER, _COUNTRY, *constants)
    return Telling(
        schema,
        lambda one: _features(age=one.age, basket=value(one.basket), member=one.member, country=one.country, **more),
    )


def _tell_twice() -> Telling:
    """Return a telling in which age and basket are there twice."""
    plain = _tell_basket(Numeric(log_scale=True), lambda basket: basket)
    schema = (*(plain.schema or ()), Feature("months", Numeric()), Feature("cents", Numeric(log_scale=True)))

    def tell(one: Customer) -> Features:
        features = plain.tell(one)
        values = dict(features.values) if isinstance(features, Features) else {}
        return Features.of({**values, "months": 12.0 * one.age, "cents": 100.0 * one.basket})

    return Telling(schema, tell)


TELLINGS: Mapping[str, Telling] = {
    "expert's vector": Telling(None, lambda one: one.vector),
    "dollars": _tell_basket(Numeric(log_scale=True), lambda basket: basket),
    "cents": _tell_basket(Numeric(log_scale=True), lambda basket: 100.0 * basket),
    "logarithms": _tell_basket(Numeric(), math.log),
    "dollars as differences": _tell_basket(Numeric(), lambda basket: basket),
    "with constants": _tell_basket(
        Numeric(log_scale=True),
        lambda basket: basket,
        zero=0.0,
        year=2026.0,
        live=True,
        shop="home",
        user=(1.0, 2.0, 0.0),
    ),
    "with duplicates": _tell_twice(),
}


class Played(NamedTuple):
    """A play: regrets, standard deviations and regret bounds of its rounds, shape (T,) each."""

    regrets: FloatArray
    deviations: FloatArray
    bounds: FloatArray


def play(
    telling: Telling, seed: int, *, rounds: int, spoil: Callable[[int, Customer], Customer] = lambda _, one: one
) -> Played:
    """Play a shop from the first round; `spoil` returns the customer that the service gets a description of."""
    draws, rng = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    shop = FeatureShop.draw(np.random.default_rng([seed, 0]))
    encoder = None if telling.schema is None else Encoder.initial(telling.schema)
    context_dim = 7 if telling.schema is None else width_of(telling.schema)
    state = State.initial(
        adaptive_kendall(N_ITEMS, SLATE_SIZE), context_dim=context_dim, limits=Limits(), encoded=encoder is not None
    )
    eligible, figures = np.arange(N_ITEMS, dtype=np.int32), []
    for number in range(rounds):
        customer, noise = shop.customer(draws), _NOISE * float(draws.normal())
        description = telling.tell(spoil(number, customer))
        if encoder is not None and isinstance(description, Features):
            before = encoder
            encoder = encoder.observe(description)
            state = _recode(state, before, encoder)
            context = encoder.encode(description).context
        else:
            context = np.asarray(description)
        one = decide(state, DEFAULT_EXPLORATION, context=context, eligible=eligible, rng=rng)
        utilities = shop.utilities(customer)
        earned = float(utilities[one.ranking] @ _DISCOUNTS)
        best = float(np.sort(utilities)[::-1][:SLATE_SIZE] @ _DISCOUNTS)
        state = state.shown(str(number), context, one.ranking)
        state = state.rewarded(str(number), context, one.ranking, reward=earned + noise)
        figures.append((best - earned, one.standard_deviation, one.regret_bound))
    return Played(*np.array(figures).T)


def _recode(state: State, before: Encoder, after: Encoder) -> State:
    if after.encodes_alike(before):
        return state
    shared = math.sqrt(state.shared)
    return change_contexts(state, lambda contexts, sizes: after.recode(contexts, sizes, before, shared=shared))
