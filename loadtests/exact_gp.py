"""GPyTorch's exact Gaussian process on the features of the service's kernel.

The kernel is the product of a linear one over contexts and a linear one over the rankings' explicit features, which
GPyTorch evaluates several times faster than one linear kernel over their outer products. `VARIANTS` are the settings
under which its variances are exact: by default it approximates them above 800 rows, and is wrong by more than their
size here.
"""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gpytorch
import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from topk_bandit.learning.posterior import Posterior

    Floats = NDArray[np.float64]

__all__ = ["VARIANTS", "ExactGp", "Variant"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A precision, and whether covariances are predicted from a cached root (`fast_pred_var`)."""

    dtype: torch.dtype
    fast: bool

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{', fast_pred_var' if self.fast else ''}"


VARIANTS = tuple(Variant(dtype, fast) for dtype in (torch.float32, torch.float64) for fast in (True, False))


class _ProductKernel(gpytorch.kernels.Kernel):
    """(c.c') (phi.phi') of inputs that hold a context and then a ranking's features."""

    def __init__(self, context_dim: int) -> None:
        super().__init__()
        self._split = context_dim

    def forward(self, x1: torch.Tensor, x2: torch.Tensor, *, diag: bool = False, **_: object) -> torch.Tensor:
        left, right = x1[..., : self._split], x2[..., : self._split]
        phi, other = x1[..., self._split :], x2[..., self._split :]
        if diag:
            return (left * right).sum(-1) * (phi * other).sum(-1)
        return (left @ right.mT) * (phi @ other.mT)


class _Model(gpytorch.models.ExactGP):
    def __init__(
        self, inputs: torch.Tensor, targets: torch.Tensor, likelihood: gpytorch.likelihoods.Likelihood, dim: int
    ) -> None:
        super().__init__(inputs, targets, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(_ProductKernel(dim))

    def forward(self, inputs: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))


class ExactGp:
    """The posterior of the same rows, with the noise, offset and amplitude of `posterior`; one thread.

    Parameters
    ----------
    contexts, features, rewards
        Rows: (N, C), (N, P) and (N,).
    """

    def __init__(
        self, posterior: Posterior, contexts: Floats, features: Floats, rewards: Floats, variant: Variant
    ) -> None:
        torch.set_num_threads(1)
        self._variant = variant
        inputs, targets = self.inputs(contexts, features), torch.tensor(rewards, dtype=variant.dtype)
        positive = gpytorch.constraints.GreaterThan(1e-10)
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=positive)
        self._model = _Model(inputs, targets, likelihood, contexts.shape[1]).to(variant.dtype)
        self._model.mean_module.initialize(constant=posterior.offset)
        self._model.covar_module.initialize(outputscale=posterior.amplitude)
        likelihood.initialize(noise=posterior.amplitude * posterior.noise_variance)
        self._model.eval()
        likelihood.eval()

    def inputs(self, contexts: Floats, features: Floats) -> torch.Tensor:
        """Return what it takes in, for rankings with these features in these contexts."""
        return torch.tensor(np.hstack([contexts, features]), dtype=self._variant.dtype)

    def predict(self, inputs: torch.Tensor) -> tuple[float, Floats, Floats]:
        """Return seconds, means and variances."""
        with self._exact():
            start = time.perf_counter()
            found = self._model(inputs)
            mean, variance = found.mean, found.variance
            took = time.perf_counter() - start
        return took, mean.double().numpy(), variance.double().numpy()

    def seconds_to_condition(self, inputs: torch.Tensor, reward: float) -> float:
        """Return how long a fantasy model with one more row takes, until it can predict one slate."""
        targets = torch.tensor([reward], dtype=self._variant.dtype)
        if self._model.prediction_strategy is None:  # other data were put in and taken out since
            self.predict(inputs)
        with self._exact():
            start = time.perf_counter()
            found = self._model.get_fantasy_model(inputs, targets)(inputs)
            _ = found.mean, found.variance
            return time.perf_counter() - start

    def seconds_to_start_again(self, inputs: torch.Tensor, reward: float) -> float:
        """Return how long it takes to put in all data with one more row, and to predict one slate; it is left as is."""
        (before,), targets = self._model.train_inputs, self._model.train_targets
        more = torch.cat([before, inputs]), torch.cat([targets, torch.tensor([reward], dtype=self._variant.dtype)])
        with self._exact():
            start = time.perf_counter()
            self._model.set_train_data(*more, strict=False)
            found = self._model(inputs)
            _ = found.mean, found.variance
            took = time.perf_counter() - start
            self._model.set_train_data(before, targets, strict=False)
        return took

    @contextmanager
    def _exact(self) -> Iterator[None]:
        with (
            torch.no_grad(),
            gpytorch.settings.fast_pred_var(self._variant.fast),
            gpytorch.settings.max_cholesky_size(100_000),
            gpytorch.settings.max_root_decomposition_size(100_000),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # a training point among those asked for is worth a warning to it
            yield
