"""Small shops with known rewards, and logs of them; distributions by enumeration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.learning.evaluation.slate_log import SlateLog, slate_log
from topk_bandit.learning.rankings import Rankings, all_rankings, random_rankings

if TYPE_CHECKING:
    from topk_bandit.learning.evaluation.targets import Target

NEAR, UNIFORM = 0.2, 0.1


def mixture(best: list[int], eligible: list[int], near: float, uniform: float) -> dict[tuple[int, ...], float]:
    """Return every slate's probability under the logging policy, as its definition says it."""
    k = len(best)
    others = [item for item in eligible if item not in best]
    replaced = [(*best[:j], item, *best[j + 1 :]) for j in range(k) for item in others]
    swapped = []
    for j in range(k):
        for l in range(j + 1, k):  # noqa: E741
            order = list(best)
            order[j], order[l] = order[l], order[j]
            swapped.append(tuple(order))
    slates = [tuple(row) for row in all_rankings(np.array(eligible), slate_size=k).tolist()]
    chances = dict.fromkeys(slates, uniform / len(slates))
    for slate in (*replaced, *swapped):
        chances[slate] += near / len(replaced + swapped)
    chances[tuple(best)] += 1.0 - near - uniform
    return chances


class Enumerated(NamedTuple):
    """A log that has each slate of one request once, and the probability of each."""

    log: SlateLog
    chances: np.ndarray


def enumerated(
    n: int, eligible: list[int], best: list[int], *, near: float = NEAR, uniform: float = UNIFORM
) -> Enumerated:
    chances = mixture(best, eligible, near, uniform)
    slates = np.array(list(chances), dtype=np.int32)
    mask = np.zeros((len(slates), n), dtype=bool)
    mask[:, eligible] = True
    log = slate_log(
        np.ones((len(slates), 1)),
        mask,
        slates,
        np.zeros(len(slates)),
        best=np.tile(np.array(best, dtype=np.int32), (len(slates), 1)),
        near_share=near,
        uniform_share=uniform,
    )
    return Enumerated(log, np.array(list(chances.values())))


def target_chances(target: Target, slates: Rankings) -> np.ndarray:
    """Return the probabilities of slates (A, k) for the first request of a target, by its definition."""
    m, k = int(target.n_eligible[0]), slates.shape[1]
    chances = np.full(len(slates), float(target.uniform_share[0]) / math.perm(m, k))
    for slate, chance in zip(target.slates[0].tolist(), target.probabilities[0].tolist(), strict=True):
        chances += chance * (slates == slate).all(axis=1)
    return chances


def indicators(slates: Rankings, n: int) -> np.ndarray:
    """Return 1_s of slates (A, k), shape (A, k n)."""
    rows = np.zeros((len(slates), slates.shape[1], n))
    np.put_along_axis(rows, slates[:, :, None].astype(np.intp), 1.0, axis=2)
    return rows.reshape(len(slates), -1)


class Shop(NamedTuple):
    """Expected reward: contexts (u, c) times effects (k, n, c), the items' at the positions; noise is normal."""

    contexts: np.ndarray
    effects: np.ndarray
    noise: float

    def expected(self, contexts: np.ndarray, slates: Rankings) -> np.ndarray:
        return self.parts(contexts, slates).sum(axis=1)

    def parts(self, contexts: np.ndarray, slates: Rankings) -> np.ndarray:
        """Return what the item at each position is expected to earn, shape (a, k)."""
        return np.einsum("ajc,ac->aj", self.effects[np.arange(slates.shape[1]), slates], contexts)

    def best(self, contexts: np.ndarray, eligible: np.ndarray, effects: np.ndarray) -> Rankings:
        """Return slates that are the best position by position, of the eligible items, by some effects."""
        worth = np.einsum("jic,ac->aji", effects, contexts)
        worth = np.where(eligible[:, None, :], worth, -np.inf)
        chosen = np.empty((len(contexts), len(effects)), dtype=np.int32)
        for place in range(len(effects)):
            chosen[:, place] = worth[:, place].argmax(axis=1)
            np.put_along_axis(worth, chosen[:, place][:, None, None].repeat(len(effects), axis=1), -np.inf, axis=2)
        return chosen


def small_shop(rng: np.random.Generator, *, n: int = 8, k: int = 2, noise: float = 0.5) -> Shop:
    contexts = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    discounts = 1.0 / np.log2(np.arange(2, k + 2))
    return Shop(contexts, discounts[:, None, None] * rng.normal(size=(n, 3)), noise)


def logged(
    shop: Shop,
    rng: np.random.Generator,
    count: int,
    *,
    near: float = NEAR,
    uniform: float = UNIFORM,
    candidates: int = 8,
) -> SlateLog:
    """Return a log of a policy whose best slates come from effects that have errors."""
    k, n, _ = shop.effects.shape
    contexts = shop.contexts[rng.integers(len(shop.contexts), size=count)]
    eligible = rng.random((count, n)).argsort(axis=1) < candidates
    best = shop.best(contexts, eligible, shop.effects + 0.3 * rng.normal(size=shop.effects.shape))
    slates = best.copy()
    for row, luck in enumerate(rng.random(count)):
        items = np.flatnonzero(eligible[row])
        if luck < uniform:
            slates[row] = random_rankings(items, slate_size=k, count=1, rng=rng)[0]
        elif luck < uniform + near:
            chances = mixture(best[row].tolist(), items.tolist(), 1.0, 0.0)
            near_by = [slate for slate, chance in chances.items() if chance > 0.0]
            slates[row] = near_by[rng.integers(len(near_by))]
    rewards = shop.expected(contexts, slates) + shop.noise * rng.normal(size=count)
    return slate_log(contexts, eligible, slates, rewards, best=best, near_share=near, uniform_share=uniform)
