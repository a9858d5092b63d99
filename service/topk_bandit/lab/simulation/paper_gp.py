"""GP-TopK as the paper runs it: the learner's posterior under the protocol of Sections 4 and 5 and Appendix C.2.

Rewards are modelled as f(c, pi) + noise with f of prior mean zero and covariance (c.c') k_r(pi, pi'), k_r of unit norm
(Eq. 6); the posterior is that of Eqs. 34 and 35. The noise's standard deviation is the one of 0.01, 0.05 and 0.1 under
which the rewards so far are most likely, chosen after every 10 rewards; before the first choice, which the paper leaves
open, it is the middle one. A slate maximises mean + sqrt(beta_t) standard deviation with
beta_t = beta_gp log(|X| t^2 pi^2), where |X| counts contexts and rankings. Nothing is drawn at random but ties, and
slates without a reward do not count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from topk_bandit.domain.bandits import Kernel
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.lab.simulation.maximisers import BreadthFirst, Exhaustive
from topk_bandit.lab.simulation.policies import Policy
from topk_bandit.learning.acquisition import paper_beta
from topk_bandit.learning.policy import kernel_of
from topk_bandit.learning.posterior import Posterior
from topk_bandit.learning.rankings import log_count

if TYPE_CHECKING:
    from topk_bandit.lab.simulation.episodes import ProblemSize, Visit
    from topk_bandit.lab.simulation.maximisers import Maximiser
    from topk_bandit.learning.kendall import KendallKernel
    from topk_bandit.learning.posterior import Observations

__all__ = [
    "BETA_SCALES",
    "NOISE_DEVIATIONS",
    "PaperGpTopK",
    "log_likelihood",
    "paper_policies",
]

FloatArray = NDArray[np.float64]

BETA_SCALES = 0.05, 0.1, 0.5
"""beta_gp: the paper tries these."""

NOISE_DEVIATIONS = 0.01, 0.05, 0.1
"""sigma: it is one of these."""

_FIRST_DEVIATION = NOISE_DEVIATIONS[1]
_CHOICE_EVERY = 10
_ENUMERATED = 6840
"""So many rankings are looked at one by one: all of 3 out of 20."""


class PaperGpTopK:
    """The paper's policy; implements `Player`.

    Parameters
    ----------
    size
        What it knows before its first round.
    kernel
        Kernel of the rankings.
    beta
        beta_gp, at least 0.
    rng
        Breaks ties, and draws the local search's candidates.
    """

    def __init__(self, size: ProblemSize, *, kernel: Kernel, beta: float, rng: np.random.Generator) -> None:
        if not (math.isfinite(beta) and beta >= 0.0):
            raise InvalidArgumentError("beta", f"expected a number of at least 0, got {beta}")
        self._beta, self._rng = beta, rng
        self._log_n_arms = math.log(size.n_contexts) + log_count(size.n_items, size.slate_size)
        self._exhaustive, self._search = Exhaustive(), BreadthFirst()
        self._slates: dict[int, tuple[FloatArray, NDArray[np.int32]]] = {}
        self.posterior = Posterior.prior(
            kernel_of(kernel, size.n_items, size.slate_size),
            context_dim=size.context_dim,
            noise_variance=_FIRST_DEVIATION**2,
        )

    def choose(self, visit: Visit) -> NDArray[np.int32]:
        """Return the ranking with the largest upper confidence bound: of all, or that the local search finds."""
        n_rankings = math.perm(len(visit.eligible), self.posterior.kernel.slate_size)
        maximiser: Maximiser = self._exhaustive if n_rankings <= _ENUMERATED else self._search
        beta = paper_beta(self._beta, log_n_arms=self._log_n_arms, round_number=visit.number + 1)
        slate = maximiser.best(self.posterior, visit.context, visit.eligible, beta=beta, rng=self._rng)
        self._slates[visit.number] = visit.context, slate
        return slate

    def observe(self, number: int, reward: float) -> None:
        """Learn a reward; after every tenth, choose the noise."""
        self.posterior = self.posterior.observe(*self._slates.pop(number), reward)
        if self.posterior.n_rows % _CHOICE_EVERY == 0:
            deviation = _likeliest(self.posterior.kernel, self.posterior.observations)
            if deviation**2 != self.posterior.noise_variance:
                self.posterior = self.posterior.refit(self.posterior.observed_rows, noise_variance=deviation**2)

    def close(self, number: int) -> None:
        """Forget a slate that will have no reward."""
        del self._slates[number]


def log_likelihood(covariance: FloatArray, rewards: FloatArray, deviation: float) -> float:
    """Return the log density of rewards (N,) with a mean of zero, covariance K (N, N) and noise of a deviation."""
    lower = np.linalg.cholesky(covariance + deviation**2 * np.eye(len(rewards)))
    whitened = solve_triangular(lower, rewards, lower=True)
    log_determinant = 2.0 * float(np.log(np.diag(lower)).sum())
    return -0.5 * (float(whitened @ whitened) + log_determinant + len(rewards) * math.log(2.0 * math.pi))


def _likeliest(kernel: KendallKernel, observed: Observations) -> float:
    contexts, rankings, rewards = observed
    covariance = (contexts @ contexts.T) * kernel.gram(rankings, rankings)
    return max(NOISE_DEVIATIONS, key=lambda deviation: log_likelihood(covariance, rewards, deviation))


@dataclass(frozen=True, slots=True)
class _Make:
    """Makes players of one kernel and one beta_gp."""

    kernel: Kernel
    beta: float

    def __call__(self, size: ProblemSize, rng: np.random.Generator) -> PaperGpTopK:
        return PaperGpTopK(size, kernel=self.kernel, beta=self.beta, rng=rng)


_FAMILIES = {Kernel.WEIGHTED: "WK", Kernel.CONVOLUTIONAL: "CK", Kernel.WEIGHTED_CONVOLUTIONAL: "WCK"}


def paper_policies() -> list[Policy]:
    """Return the paper's nine: "WK 0.05" to "WCK 0.5", families WK, CK and WCK."""
    return [
        Policy(f"{family} {beta:g}", family, _Make(kernel, beta))
        for kernel, family in _FAMILIES.items()
        for beta in BETA_SCALES
    ]
