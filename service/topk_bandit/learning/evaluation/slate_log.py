"""What was logged: requests, the slates shown, their rewards, and the exact distribution that each was drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.learning.rankings import log_count, validated_rankings

if TYPE_CHECKING:
    from topk_bandit.learning.rankings import Rankings

__all__ = ["LoggingPolicy", "OtherSlates", "ShownSlates", "SlateLog", "checked_slates", "share_of_each", "slate_log"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LoggingPolicy:
    """The distribution of the slate shown, for each of N requests: a mixture of three.

    With probability 1 - near_share - uniform_share it is the best slate b; with probability near_share a slate drawn
    uniformly from those near b; with probability uniform_share one drawn uniformly from all eligible ones. Near b are
    the slates with one item replaced by an eligible one that b does not show, and those with two positions exchanged:
    k (m - k) + k (k - 1) / 2 slates, for m eligible items. Where there are none, the near share is b's.

    Attributes
    ----------
    eligible
        Whether an item can be shown, shape (N, n).
    best
        The slates b, shape (N, k).
    near_share, uniform_share
        Shape (N,).
    """

    eligible: NDArray[np.bool_]
    best: Rankings
    near_share: FloatArray
    uniform_share: FloatArray

    @property
    def slate_size(self) -> int:
        """K."""
        return int(self.best.shape[1])

    @cached_property
    def n_eligible(self) -> NDArray[np.intp]:
        """How many items can be shown, shape (N,)."""
        return np.asarray(self.eligible.sum(axis=1))

    @cached_property
    def n_near(self) -> NDArray[np.intp]:
        """How many slates are near b, shape (N,)."""
        k = self.slate_size
        return np.asarray(k * (self.n_eligible - k) + k * (k - 1) // 2)

    @cached_property
    def share_of_each_near(self) -> FloatArray:
        """What the near share gives to each slate near b, shape (N,)."""
        return np.asarray(np.where(self.n_near > 0, self.near_share / np.maximum(self.n_near, 1), 0.0))

    @cached_property
    def share_of_best(self) -> FloatArray:
        """What b has beside what the uniform share gives it, shape (N,)."""
        return np.asarray(1.0 - self.uniform_share - self.share_of_each_near * self.n_near)

    def first(self, count: int) -> LoggingPolicy:
        """Return the distribution of the first `count` positions, which is a mixture of the same form."""
        n_near = count * (self.n_eligible - count) + count * (count - 1) // 2
        return LoggingPolicy(self.eligible, self.best[:, :count], self.share_of_each_near * n_near, self.uniform_share)

    def propensities(self, slates: Rankings) -> FloatArray:
        """Return the probability that each request's slate (N, k) is shown, shape (N,)."""
        is_best, is_near = self.places(slates)
        probability = self.share_of_best * is_best + self.share_of_each_near * is_near
        return np.asarray(probability + self.uniform_share * share_of_each(self.n_eligible, self.slate_size))

    def places(self, slates: Rankings) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return whether each request's slate (N, k) is b, and whether it is near b, both of shape (N,)."""
        different = (slates != self.best).sum(axis=1)
        same_items = (slates[:, :, None] == self.best[:, None, :]).any(axis=2).all(axis=1)
        return different == 0, (different == 1) | ((different == 2) & same_items)

    def position_probabilities(self) -> FloatArray:
        """Return the probability that each position shows each item, shape (N, k, n)."""
        k, near = self.slate_size, self.share_of_each_near
        probabilities = np.repeat((self.eligible * self._of_each_item[:, None])[:, None, :], k, axis=1)
        unchanged = self.share_of_best + near * (self.n_near - self.n_eligible)
        rows, columns = np.arange(len(self.best))[:, None], np.arange(k)
        probabilities[rows, columns, self.best] += unchanged[:, None]
        return np.asarray(probabilities)

    @property
    def _of_each_item(self) -> FloatArray:
        # Of the slates near b one shows a given item at a given position, if b shows another one there.
        return np.asarray(self.share_of_each_near + self.uniform_share / self.n_eligible)


class ShownSlates(Protocol):
    """Requests in their order of time: contexts (N, C), the slates shown (N, k) of n items, rewards (N,)."""

    @property
    def contexts(self) -> FloatArray: ...  # noqa: D102
    @property
    def slates(self) -> Rankings: ...  # noqa: D102
    @property
    def rewards(self) -> FloatArray: ...  # noqa: D102
    @property
    def n_items(self) -> int: ...  # noqa: D102
    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class SlateLog:
    """Logged requests in their order of time: contexts (N, C), how slates were drawn, those shown (N, k), rewards (N,).

    Make one with `slate_log`, which checks.
    """

    contexts: FloatArray
    policy: LoggingPolicy
    slates: Rankings
    rewards: FloatArray

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return int(self.policy.eligible.shape[1])

    def part(self, rows: NDArray[np.bool_]) -> SlateLog:
        """Return the log of some of the requests, those where `rows` (N,) is true."""
        policy = LoggingPolicy(
            self.policy.eligible[rows],
            self.policy.best[rows],
            self.policy.near_share[rows],
            self.policy.uniform_share[rows],
        )
        return SlateLog(self.contexts[rows], policy, self.slates[rows], self.rewards[rows])

    def first(self, count: int) -> SlateLog:
        """Return the log of the first `count` positions, with the rewards of the slates."""
        return SlateLog(self.contexts, self.policy.first(count), self.slates[:, :count], self.rewards)


class OtherSlates(NamedTuple):
    """Slates that were shown instead of those drawn: nobody knows their propensities, but what they earned is known.

    Attributes
    ----------
    contexts, slates, rewards
        As in a `SlateLog`, of M requests.
    before
        How many requests of the `SlateLog` came before each, shape (M,).
    """

    contexts: FloatArray
    slates: Rankings
    rewards: FloatArray
    before: NDArray[np.intp]


def slate_log(
    contexts: FloatArray,
    eligible: NDArray[np.bool_],
    slates: Rankings,
    rewards: FloatArray,
    *,
    best: Rankings,
    near_share: FloatArray | float,
    uniform_share: FloatArray | float,
) -> SlateLog:
    """Return a log of N requests, in their order of time.

    Parameters
    ----------
    contexts
        Shape (N, C).
    eligible
        Whether an item could be shown, shape (N, n).
    slates
        What was shown, shape (N, k).
    rewards
        Shape (N,). Requests without a reward are left out by the caller, if it is missing for no reason of its own.
    best
        The slate that would be shown without exploration, shape (N, k).
    near_share, uniform_share
        As of `LoggingPolicy`, each the probability altogether: a bandit's settings have the near share among the slates
        that are not drawn uniformly, which here is (1 - uniform_share) times that. One for all, or shape (N,).

    Raises
    ------
    InvalidArgumentError
        Shapes differ, numbers are not finite, a slate shows what is not eligible, shares are no probabilities, or the
        uniform share is zero: then some slates are never shown, and nothing says what they would have earned.
    """
    mask, earned, seen = np.asarray(eligible, dtype=bool), np.asarray(rewards, dtype=float), np.asarray(contexts, float)
    _check_numbers(seen, mask, earned)
    near, uniform = (np.broadcast_to(np.asarray(share, float), earned.shape) for share in (near_share, uniform_share))
    if not ((near >= 0.0) & (uniform > 0.0) & (near + uniform <= 1.0)).all():
        raise InvalidArgumentError("uniform_share", "expected near_share >= 0, uniform_share > 0, together at most 1")
    size = np.asarray(best).shape[-1]
    shown = checked_slates(slates, mask, size, field="slates")
    policy = LoggingPolicy(mask, checked_slates(best, mask, size, field="best"), near, uniform)
    return SlateLog(seen, policy, shown, earned)


def _check_numbers(contexts: FloatArray, eligible: NDArray[np.bool_], rewards: FloatArray) -> None:
    if eligible.ndim != 2 or not eligible.size:
        raise InvalidArgumentError("eligible", f"expected shape (N, n), got {eligible.shape}")
    if contexts.ndim != 2 or len(contexts) != len(eligible) or not np.isfinite(contexts).all():
        raise InvalidArgumentError("contexts", f"expected {len(eligible)} rows of finite numbers")
    if rewards.shape != (len(eligible),) or not np.isfinite(rewards).all():
        raise InvalidArgumentError("rewards", f"expected {len(eligible)} finite numbers")


def checked_slates(slates: Rankings, eligible: NDArray[np.bool_], slate_size: int, *, field: str) -> Rankings:
    """Return a slate (N, k) for each request, of its eligible items (N, n)."""
    rows = validated_rankings(slates, n_items=eligible.shape[1], slate_size=slate_size, field=field)
    if len(rows) != len(eligible):
        raise InvalidArgumentError(field, f"expected {len(eligible)} slates, got {len(rows)}")
    if not np.take_along_axis(eligible, rows, axis=1).all():
        raise InvalidArgumentError(field, "a slate shows an item that is not eligible")
    return rows


def share_of_each(n_eligible: NDArray[np.intp], slate_size: int) -> FloatArray:
    """Return one by the number of slates of so many items, of each request, shape (N,)."""
    numbers, inverse = np.unique(n_eligible, return_inverse=True)
    return np.asarray(np.exp([-log_count(int(number), slate_size) for number in numbers])[inverse])
