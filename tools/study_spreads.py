"""Whether a study's utilities are as near to the true ones as it says: a table for docs/preference-models.md.

    .venv/bin/python tools/study_spreads.py --studies 50
    .venv/bin/python tools/study_spreads.py --asked design --items 40

Each study has items with 8 normal features, people who rank lists of four by Plackett-Luce, and utilities of which
features tell a part of spread 1, beside one of spread `residual` that they do not tell. Lists are drawn uniformly, or
asked as a study asks. Columns: shares of utilities, and of differences of two, within one and two standard deviations;
the root mean square error beside the standard deviation that was said; and Kendall's tau with the true order, of the
study, of the model of features alone, of the one without features, and of counting places.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import kendalltau

from topk_bandit.preferences import sampling
from topk_bandit.preferences.designs.optimal import Feedback
from topk_bandit.preferences.inference import learn_utilities
from topk_bandit.preferences.questions import QuestionPool, choose_next_lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.preferences.answers import Orderings
    from topk_bandit.preferences.inference import UtilityPosterior

    Floats = NDArray[np.float64]

RESIDUALS = (0.0, 0.3, 0.7, 1.0)
ITEMS, ANSWERS = (40, 300), (300, 1000)
N_FEATURES, LIST_SIZE = 8, 4
COLUMNS = (
    *("items", "answers", "residual", "utilities: 1 sd", "2 sd", "differences: 1 sd", "2 sd", "rmse, said sd"),
    *("tau", "features alone", "without", "places"),
)


def ask(pool: QuestionPool, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return which lists a study asks about, shape (count, K)."""
    design = pool.design(list_size=LIST_SIZE, budget=count, rng=rng)
    nothing = np.zeros(len(design.weights), dtype=np.int64)
    return np.asarray(design.subsets[choose_next_lists(pool, design, asked=nothing, count=count)])


def measure(asked: str, n_items: int, n_answers: int, residual: float, seed: int) -> list[float]:
    """Return a study's figures, in the order of the columns."""
    rng = np.random.default_rng([seed, n_items, n_answers, round(10 * residual)])
    features = rng.normal(size=(n_items, N_FEATURES))
    told = features @ rng.normal(size=N_FEATURES)
    truth = told / told.std() + residual * rng.normal(size=n_items)
    truth -= truth.mean()
    pool = QuestionPool.of(features, None, feedback=Feedback.RANKING, features_alone=asked == "features")
    if asked == "drawn":
        shown = rng.permuted(np.tile(np.arange(n_items), (n_answers, 1)), axis=1)[:, :LIST_SIZE]
    else:
        shown = ask(pool, n_answers, rng)
    answers = sampling.draw_rankings(truth, shown, rng=rng)
    without = QuestionPool.of(np.eye(n_items), None, feedback=Feedback.RANKING)
    found, rows = pool.learn(answers), pool.span.coordinates
    alone = learn_utilities(rows, answers, own_parts=False).utilities(rows).mean
    items = without.learn(answers).utilities(without.span.coordinates).mean
    utilities = found.utilities(rows)
    mean, spread = utilities.mean, utilities.standard_deviation
    errors = (mean - truth) / spread, differences(found, rows, truth, rng)
    shares = [float((np.abs(one) < limit).mean()) for one in errors for limit in (1.0, 2.0)]
    rmse = float(np.sqrt(np.mean((mean - truth) ** 2)))
    taus = [kendalltau(one, truth).statistic for one in (mean, alone, items, -mean_places(answers, n_items))]
    return [*shares, rmse, float(np.sqrt(np.mean(spread**2))), *taus]


def differences(found: UtilityPosterior, rows: Floats, truth: Floats, rng: np.random.Generator) -> Floats:
    """Return errors of a thousand differences of two items' utilities, in standard deviations."""
    first, second = rng.integers(len(rows), size=(2, 1000))
    first, second = first[first != second], second[first != second]
    whole = np.hstack([rows, np.eye(len(rows))])
    weights = np.concatenate([found.posterior.mean, found.own.mean])
    covariance = np.block([[found.posterior.covariance, found.across], [found.across.T, found.own.covariance]])
    contrasts = whole[first] - whole[second]
    spread = np.sqrt(((contrasts @ covariance) * contrasts).sum(axis=1))
    return np.asarray((contrasts @ weights - truth[first] + truth[second]) / spread)


def mean_places(answers: Orderings, n_items: int) -> Floats:
    """Return each item's mean place, that in the middle where it was never shown."""
    places = np.tile(np.arange(LIST_SIZE, dtype=np.float64), answers.n_answers)
    counts = np.bincount(answers.items, minlength=n_items)
    sums = np.bincount(answers.items, weights=places, minlength=n_items)
    return np.where(counts > 0, sums / np.maximum(counts, 1), (LIST_SIZE - 1) / 2.0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=50, help="studies a row (default: 50)")
    parser.add_argument(
        "--asked",
        choices=("drawn", "design", "features"),
        default="drawn",
        help="lists drawn uniformly (default), by the study's design, or by that of features alone",
    )
    parser.add_argument("--items", type=int, nargs="+", default=ITEMS, help="items of a study (default: 40 300)")
    parser.add_argument("--answers", type=int, nargs="+", default=ANSWERS, help="answers to it (default: 300 1000)")
    given = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|", sep="\n")
    began = time.perf_counter()
    for n_items in given.items:
        for n_answers in given.answers:
            for residual in RESIDUALS:
                found = [measure(given.asked, n_items, n_answers, residual, seed) for seed in range(given.studies)]
                one = np.mean(found, axis=0)
                shares, taus = [f"{share:.2f}" for share in one[:4]], [f"{tau:.2f}" for tau in one[6:]]
                cells = [str(n_items), str(n_answers), f"{residual:g}", *shares, f"{one[4]:.2f}, {one[5]:.2f}", *taus]
                print(f"| {' | '.join(cells)} |", flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
