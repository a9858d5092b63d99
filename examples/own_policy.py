"""A policy of one's own on the library's posterior, without a service: python examples/own_policy.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topk_bandit.learning.kendall import weighted_convolutional_kendall
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import random_rankings

N_ITEMS, SLATE_SIZE, ROUNDS = 12, 4, 100
CONTEXT = np.ones(1)
Slate = NDArray[np.int32]


def earned(slate: Slate, rng: np.random.Generator) -> float:
    """Return one noisy number for a slate: item 11 interests most, and upper ranks count more."""
    return float((slate / N_ITEMS / np.arange(1, SLATE_SIZE + 1)).sum() + rng.normal(scale=0.05))


def best_of_a_sample(posterior: Posterior, rng: np.random.Generator) -> Slate:
    """Return the best of 500 random slates by mean and deviation: the service searches, this rule just looks."""
    slates = random_rankings(np.arange(N_ITEMS), slate_size=SLATE_SIZE, count=500, rng=rng)
    mean, variance = posterior.predict(CONTEXT, slates)
    chosen: Slate = slates[np.argmax(mean + 0.5 * np.sqrt(variance))]
    return chosen


def play(rng: np.random.Generator) -> list[float]:
    """Return what each round's slate earned."""
    posterior = Posterior.prior(weighted_convolutional_kendall(N_ITEMS, SLATE_SIZE), context_dim=1, noise_variance=0.01)
    rewards: list[float] = []
    for _ in range(ROUNDS):
        slate = best_of_a_sample(posterior, rng)
        rewards.append(earned(slate, rng))
        posterior = posterior.observe(CONTEXT, slate, rewards[-1])
        # The service chooses scale and noise from the rewards; here the offset is enough.
        posterior = posterior.rescale(offset=posterior.best_offset, amplitude=1.0)
    return rewards


def main() -> None:
    """Play, and print what slates earned at first and in the end."""
    rewards = play(np.random.default_rng(1))
    print(f"first 20 slates earned {np.mean(rewards[:20]):.2f} each, the last 20 {np.mean(rewards[-20:]):.2f}")


if __name__ == "__main__":
    main()
