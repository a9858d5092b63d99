"""How near, how good and how fast the learning from choices and comparisons is: variational posterior and RABF."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from figures import Bench, Figure, Outcome, exponent, mean_with_error
from topk_bandit.preferences import sampling
from topk_bandit.preferences.answers import Orderings
from topk_bandit.preferences.compiled.variational import answers_log_likelihoods
from topk_bandit.preferences.losses import kendall_tau_distance
from topk_bandit.preferences.models import aggregation, plackett_luce, variational
from topk_bandit.preferences.models.aggregation import Comparisons, Loss
from topk_bandit.preferences.models.variational import Bound
from topk_bandit.preferences.utilities import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["rank_aggregation", "variational_posterior"]

ITEMS, ANSWERS, DIMENSIONS = 200, 10_000, (10, 20)
DRAWS, BATCH, WIDER = 40, 250, 1.05
LEARNED, HELD_OUT, LEARNED_DIMENSION, TRIALS = 50, 1_000, 20, 200
TIMED, TIMED_DIMENSION, TIMED_ITEMS, TIMES = 100_000, 50, 1_000, 5
LARGEST, SEEDS = 10_000, 20
KINDS = (("pairs", 2), ("choices", 5))
DEVIATION_PARTS = 50  # of the progress, beside a trial


class _Asked(NamedTuple):
    features: Floats
    utilities: Floats
    answers: Orderings
    prior: Gaussian


def _asked(seed: int, *, answers: int, size: int, d: int, n: int = ITEMS, spread: float = 1.0) -> _Asked:
    """Return choices from `size` items (pairs, for 2), theta being drawn from the prior that is given."""
    rng = np.random.default_rng(seed)
    prior = Gaussian.isotropic(d, variance=spread**2 / d)
    features = rng.standard_normal((n, d))
    utilities = features @ (rng.standard_normal(d) * spread / math.sqrt(d))
    shown = np.argsort(rng.random((answers, min(n, 50))), axis=1)[:, :size]
    shown = (shown + rng.integers(0, n, (answers, 1))) % n
    return _Asked(features, utilities, sampling.draw_choices(utilities, shown, rng=rng), prior)


def variational_posterior(bench: Bench) -> Outcome:
    """Compare with the mode, predict held-out answers, and take the time."""
    figures, done, trials = [], 0, bench.scaled(TRIALS, 20)
    total = 2 * (len(DIMENSIONS) * DEVIATION_PARTS + trials)
    for d in DIMENSIONS:
        for name, size in KINDS:
            figures += _deviation(name, size, d)
            done += DEVIATION_PARTS
            bench.report(done, total)
    for name, size in KINDS:
        gains = []
        for seed in range(trials):
            gains.append(_gains(seed, size))
            done += 1
            bench.report(done, total)
        averaged, laplace = np.array(gains).T
        label = f"held-out {name} after {LEARNED}, nats per answer above the mode's"
        figures += [
            mean_with_error(f"{name}_gain", f"{label}, averaged over the posterior", averaged),
            mean_with_error(f"{name}_laplace", f"{label}, averaged over Laplace's", laplace),
        ]
    figures += _times(bench)
    settings = {
        "items": ITEMS,
        "answers": ANSWERS,
        "held_out_d": LEARNED_DIMENSION,
        "theta_from": "the prior",
        "threads": 1,
    }
    return Outcome(figures, settings)


def _deviation(name: str, size: int, d: int) -> list[Figure]:
    """Return how far means are from the mode and from the true posterior mean, in posterior standard deviations."""
    asked = _asked(1, answers=ANSWERS, size=size, d=d, spread=2.0)
    mode = plackett_luce.fit(asked.features, asked.answers, prior=asked.prior).posterior
    true, modal = _posterior_mean(asked, mode), asked.features @ mode.mean
    key, start = f"{name}_{d}", f"{ANSWERS:,} {name}, d = {d}"
    figures = [Figure(f"{key}_true", f"{start}: true posterior mean from the mode", _away(true, mode.mean, mode), "sd")]
    for bound in Bound:
        found = variational.fit(asked.features, asked.answers, prior=asked.prior, bound=bound).posterior
        ratio = np.sqrt(np.diag(found.covariance) / np.diag(mode.covariance))
        mean = asked.features @ found.mean
        one, about = f"{key}_{bound}", f"{start}, {bound} bound"
        figures += [
            Figure(f"{one}_deviation", f"{about}: mean from the mode", _away(found.mean, mode.mean, found), "sd"),
            Figure(f"{one}_from_true", f"{about}: mean from the true one", _away(found.mean, true, found), "sd"),
            Figure(f"{one}_rank", f"{about}: rank correlation with the mode's utilities", _ranks(mean, modal)),
            Figure(f"{one}_stretch", f"{about}: spread of utilities / the mode's", float(mean.std() / modal.std())),
            Figure(f"{one}_sd", f"{about}: standard deviations / Laplace's", float(ratio.mean())),
        ]
    return figures


def _away(first: Floats, second: Floats, q: Gaussian) -> float:
    """Return the largest difference of two means, in standard deviations."""
    return float((np.abs(first - second) / np.sqrt(np.diag(q.covariance))).max())


def _ranks(first: Floats, second: Floats) -> float:
    return float(spearmanr(first, second).statistic)


def _posterior_mean(asked: _Asked, mode: Gaussian) -> Floats:
    """Return the true posterior mean, by importance sampling about the mode in pairs of opposite draws."""
    rng = np.random.default_rng(0)
    lower, precision = np.linalg.cholesky(mode.covariance), asked.prior.precision(len(mode.mean))
    log_weights, drawn = [], []
    for _ in range(DRAWS):
        half = rng.standard_normal((BATCH, len(mode.mean)))
        z = np.concatenate([half, -half])
        theta = mode.mean + WIDER * z @ lower.T
        answers = asked.answers.items, asked.answers.starts, asked.answers.places
        likelihood = answers_log_likelihoods(asked.features @ theta.T, *answers).sum(axis=0)
        prior = np.einsum("bd,de,be->b", theta, precision, theta)
        log_weights.append(likelihood - 0.5 * prior + 0.5 * (z**2).sum(axis=1))
        drawn.append(theta)
    logs = np.concatenate(log_weights)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights @ np.concatenate(drawn) / weights.sum())


def _gains(seed: int, size: int) -> tuple[float, float]:
    """Return by how much held-out answers are more likely, averaged over two posteriors, than at the mode."""
    asked = _asked(seed, answers=LEARNED + HELD_OUT, size=size, d=LEARNED_DIMENSION, spread=2.0)
    items, starts, places = asked.answers.items, asked.answers.starts, asked.answers.places
    learned = Orderings(items[: LEARNED * size], starts[: LEARNED + 1], places[:LEARNED])
    others = Orderings(items[LEARNED * size :], starts[: HELD_OUT + 1], places[LEARNED:])
    mode = plackett_luce.fit(asked.features, learned, prior=asked.prior).posterior
    found = variational.fit(asked.features, learned, prior=asked.prior).posterior
    plug_in = plackett_luce.log_likelihood(mode.mean, asked.features, others) / HELD_OUT
    averaged, laplace = (
        float(variational.predictive_log_likelihood(q, asked.features, others, rng=np.random.default_rng(seed)).mean())
        for q in (found, mode)
    )
    return averaged - plug_in, laplace - plug_in


def _times(bench: Bench) -> list[Figure]:
    counts = (TIMED // 10, TIMED // 3, TIMED)
    seconds = []
    for count in counts:
        asked = _asked(3, answers=count, size=5, d=TIMED_DIMENSION, n=TIMED_ITEMS, spread=2.0)
        took, found = [], None
        for _ in range(bench.scaled(TIMES, 2)):
            start = time.perf_counter()
            found = variational.fit(asked.features, asked.answers, prior=asked.prior)
            took.append(time.perf_counter() - start)
        seconds.append(min(took))
    return [
        Figure("seconds", f"{TIMED:,} choices of 5, d = {TIMED_DIMENSION}, to convergence, best", seconds[-1], "s"),
        Figure("sweeps", "the same: sweeps", float(found.sweeps) if found else math.nan),
        Figure("converged", "the same: whether it converged", float(found is not None and found.converged)),
        Figure("exponent", "growth of the time with the answers: exponent", exponent(counts, seconds)),
    ]


def rank_aggregation(bench: Bench) -> Outcome:
    """Run Appendix D: features of 50 log n items corrupted, 50 log n comparisons, some of them turned round."""
    sizes, seeds = (500, 1_000, 3_000, LARGEST), range(bench.scaled(SEEDS, 3))
    figures, done = [], 0
    for flips in (0.0, 0.1, 0.2):
        for loss in Loss:
            found = {}
            for n in sizes:
                found[n] = np.array([_distances(seed, n, flips, loss) for seed in seeds])
                done += 1
                bench.report(done, 6 * len(sizes))
            figures += _of_sizes(found, f"{loss}_{100 * flips:.0f}", f"{loss}, {100 * flips:.0f} % flipped")
    figures += [_seconds(loss, count) for loss in Loss for count in (500, 100_000)]
    return Outcome(figures, {"d": 10, "comparisons": "50 log n", "corrupted": "50 log n", "seeds": len(seeds)})


def _of_sizes(found: dict[int, Floats], key: str, label: str) -> list[Figure]:
    figures, (first, *_, last) = [], found
    for column, name in enumerate(("with", "without")):
        for n in (first, last):
            share = found[n][:, column]
            figures.append(
                mean_with_error(f"{key}_{name}_{n}", f"{label}, {name} features, n = {n:,}", share, unit="share")
            )
        growth = float(found[last][:, column].mean() / found[first][:, column].mean())
        figures.append(
            Figure(f"{key}_{name}_growth", f"{label}, {name} features: distance at {last:,} / at {first}", growth, "x")
        )
    return figures


def _distances(seed: int, n: int, flips: float, loss: Loss) -> tuple[float, float]:
    """Return the Kendall tau distance as a share of all pairs, with and without features."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, 10))
    scores = features @ rng.standard_normal(10) / math.sqrt(10.0)
    count = round(50 * math.log(n))
    corrupted = rng.choice(n, count, replace=False)
    features[corrupted] += rng.standard_normal((count, 10))
    given = _signs(rng, scores, count, flips)
    with_features, without = (
        float(kendall_tau_distance(scores, fitted.residuals + rows @ fitted.weights)) / (n * (n - 1) / 2)
        for rows in (features, np.zeros((n, 0)))
        for fitted in [aggregation.fit(rows, given, loss=loss)]
    )
    return with_features, without


def _signs(rng: np.random.Generator, scores: Floats, count: int, flips: float) -> Comparisons:
    n = len(scores)
    first = rng.integers(0, n, count)
    second = (first + rng.integers(1, n, count)) % n
    signs = np.sign(scores[second] - scores[first]) * np.where(rng.random(count) < flips, -1.0, 1.0)
    return Comparisons.of(np.stack([first, second], axis=1), signs, n_items=n)


def _seconds(loss: Loss, count: int) -> Figure:
    rng = np.random.default_rng(9)
    features = rng.standard_normal((LARGEST, 50))
    given = _signs(rng, features @ rng.standard_normal(50), count, 0.1)
    took = []
    for _ in range(3):
        start = time.perf_counter()
        aggregation.fit(features, given, loss=loss).utilities(features)
        took.append(time.perf_counter() - start)
    label = f"{loss}: {LARGEST:,} items, d = 50, {count:,} comparisons, scores and spreads, best"
    return Figure(f"{loss}_seconds_{count}", label, min(took), "s")
