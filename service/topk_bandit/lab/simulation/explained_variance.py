"""How much of a reward a kernel can explain, and how much of either does not depend on the order of the items shown.

A kernel spreads its prior variance over functions of a ranking; a reward that is mostly where a kernel has little is
learned slowly. The paper's diversity does not depend on the order of the items shown, which is what CK has nearly all
of its variance on; WCK has a third of it on their order, and WK all (`order_free_share`).

What a kernel can explain is the r^2 of Gaussian-process regression. Rewards are modelled as b + f(c, pi) + noise, with
f of covariance s^2 (c.c') k_r(pi, pi') (paper, Eq. 6) and noise of variance s^2 g; b, s^2 and g are those under which
the rewards are most likely. What is measured is therefore the kernel's shape, not how well somebody scaled it.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.policy import kernel_of
from topk_bandit.learning.rankings import random_rankings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import Kernel
    from topk_bandit.learning.environments import Shop
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.rankings import Rankings

__all__ = [
    "NOISE_RATIOS",
    "Regression",
    "explained_variance",
    "order_free_share",
    "order_free_variance",
    "regression",
]

FloatArray = NDArray[np.float64]

NOISE_RATIOS = np.logspace(-5.0, 2.0, 71)
"""Values of g that are tried, in units of the mean prior variance of the rewarded slates."""


class Regression(NamedTuple):
    """What rewards say of other slates.

    Attributes
    ----------
    mean
        Posterior means of the others, shape (M,).
    offset
        b.
    noise_ratio
        g, in units of the kernel.
    """

    mean: FloatArray
    offset: float
    noise_ratio: float


def regression(covariance: FloatArray, rewards: FloatArray) -> Regression:
    """Return what `rewards` say of other slates, with the b, s^2 and g under which they are most likely.

    Parameters
    ----------
    covariance
        Of all slates with the N rewarded ones, which come first, shape (N + M, N).
    rewards
        Shape (N,), N > 1, not all the same.
    """
    n_rows = len(rewards)
    variances, directions = np.linalg.eigh(covariance[:n_rows])
    along, of_ones = directions.T @ rewards, directions.sum(axis=0)
    ratios = NOISE_RATIOS * variances.mean()
    noisy = np.maximum(variances, 0.0) + ratios[:, None]
    offsets = (along * of_ones / noisy).sum(axis=1) / (of_ones**2 / noisy).sum(axis=1)
    centred = along - offsets[:, None] * of_ones
    # -2 log density where b and s^2 = the mean of centred^2 / noisy are the best for a g, but for what all g share.
    misfit = n_rows * np.log((centred**2 / noisy).mean(axis=1)) + np.log(noisy).sum(axis=1)
    best = int(np.argmin(misfit))
    weights = directions @ (centred[best] / noisy[best])
    return Regression(offsets[best] + covariance[n_rows:] @ weights, float(offsets[best]), float(ratios[best]))


def explained_variance(
    shops: Sequence[Shop],
    kernels: Sequence[Kernel],
    rng: np.random.Generator,
    *,
    n_rewarded: int = 250,
    n_others: int = 500,
) -> FloatArray:
    """Return r^2 = 1 - mean squared error / variance over slates without a reward, shape (kernels, shops).

    Slates and customers are drawn uniformly. What is predicted is the expected reward, without noise: 1 is all there
    is to know, and 0 is no better than the mean.

    Parameters
    ----------
    shops
        They give the rewards, with their noise. They differ in their objectives only.
    kernels
        All of them see the same slates, and the same rewards of a shop.
    rng
        Draws slates, customers and noise.
    n_rewarded, n_others
        How many slates have a reward, and how many are predicted: at least 2 each.
    """
    for field, wanted in (("n_rewarded", n_rewarded), ("n_others", n_others)):
        if wanted < 2:
            raise InvalidArgumentError(field, f"expected at least 2, got {wanted}")
    first, count = shops[0], n_rewarded + n_others
    n_items, slate_size = len(first.items), first.slate_size
    customers = rng.integers(len(first.customers), size=count)
    slates = random_rankings(np.arange(n_items), slate_size=slate_size, count=count, rng=rng)
    noise, contexts = rng.normal(size=n_rewarded), first.customers[customers]
    expected = np.array([_expect_rewards(shop, customers, slates) for shop in shops])
    rewards, others = expected[:, :n_rewarded] + first.noise * noise, expected[:, n_rewarded:]
    explained = np.empty((len(kernels), len(shops)))
    for row, kind in enumerate(kernels):
        covariance = contexts @ contexts[:n_rewarded].T
        covariance *= kernel_of(kind, n_items, slate_size).gram(slates, slates[:n_rewarded])
        predicted = np.array([regression(covariance, heard).mean for heard in rewards])
        explained[row] = 1.0 - ((predicted - others) ** 2).mean(axis=1) / others.var(axis=1)
    return explained


def _expect_rewards(shop: Shop, customers: NDArray[np.intp], slates: Rankings) -> FloatArray:
    """Return what each slate earns on average from the customer beside it, shape (A,)."""
    rewards = np.empty(len(slates))
    for customer in np.unique(customers):
        own = customers == customer
        rewards[own] = shop.expect_rewards(int(customer), slates[own])
    return rewards


def order_free_share(kernel: KendallKernel) -> float:
    """Return which share of a kernel's prior variance is on functions of the items shown whatever their order.

    It is the mean of k(pi, pi') over all orders pi' of the items of any pi: the kernel is of unit norm, names of items
    mean nothing to it, and the mean over all rankings is zero.
    """
    orders = _orders(kernel.slate_size)
    return float(kernel.gram(orders[:1], orders).mean())


def order_free_variance(shop: Shop, rng: np.random.Generator, *, n_slates: int = 300) -> float:
    """Return which share of the variance of a customer's rewards is left when each is the mean over all orders.

    Parameters
    ----------
    shop
        The rewards are its expectations for its first customer.
    rng
        Draws the sets of items, uniformly.
    n_slates
        How many, at least 2.
    """
    if n_slates < 2:
        raise InvalidArgumentError("n_slates", f"expected at least 2, got {n_slates}")
    orders = _orders(shop.slate_size)
    sets = random_rankings(np.arange(len(shop.items)), slate_size=shop.slate_size, count=n_slates, rng=rng)
    rewards = shop.expect_rewards(0, sets[:, orders].reshape(-1, shop.slate_size)).reshape(n_slates, len(orders))
    return float(rewards.mean(axis=1).var() / rewards.var())


def _orders(size: int) -> Rankings:
    return np.array(list(permutations(range(size))), dtype=np.int32)
