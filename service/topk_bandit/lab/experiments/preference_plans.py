"""The preference papers' experiments: what to ask about, and how to learn from the answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topk_bandit.lab.experiments.plan import Axis, Panel, Plan, Target, one_job_a_trial, stack_trials
from topk_bandit.lab.experiments.ranking_preferences import RankingPreferences
from topk_bandit.lab.experiments.targets import best_everywhere, growth, questions_saved
from topk_bandit.lab.simulation import aggregation_growth, design_loss, graded_answers, subset_loss
from topk_bandit.lab.simulation.design_loss import Survey, World
from topk_bandit.preferences.designs.optimal import Feedback

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from topk_bandit.lab.experiments.plan import Results

__all__ = ["aggregation", "dope", "dopewolfe", "graded"]

FloatArray = NDArray[np.float64]

ANSWER_SETS = 10
"""How many times questions and answers are drawn in each world of `dope`: one time says too little of the design."""

_SYNTHETIC_VARIANCE = 1.0 / 3.0
"""Mean square of weights uniform in [0, 1]."""

_BOTH = (Feedback.RATING, Feedback.RANKING)
_FLIPS = (0.0, 0.1, 0.2)
_QUESTIONS = "questions asked, n"
_DRAWN = (
    "Drawn: each design's questions are drawn from its distribution, as in the paper. Chosen one by one: each design's "
    "questions are chosen by the rule that fits it."
)


class _Lists(NamedTuple):
    """Where `dope` asks: what makes questions, the prior variance of the estimate, and what to tell of it."""

    questions: Callable[[np.random.Generator], Survey]
    prior_variance: float
    feedbacks: Sequence[Feedback]
    settings: dict[str, object]


def _synthetic(count: int, rng: np.random.Generator) -> Survey:
    """Return the questions of a new world."""
    world = design_loss.outer_product_world(rng)
    return Survey.of(world, feedbacks=_BOTH, count=count, prior_variance=_SYNTHETIC_VARIANCE, rng=rng)


def _same(questions: Survey, _: np.random.Generator) -> Survey:
    """Return the questions that data make, which are the same for all runs."""
    return questions


def _lists(given: argparse.Namespace) -> _Lists:
    count = max(given.questions)
    if given.data is None:
        settings: dict[str, object] = {"lists": 400, "list_size": 4, "features": 36, "theta": "uniform in [0, 1]^36"}
        return _Lists(partial(_synthetic, count), _SYNTHETIC_VARIANCE, _BOTH, settings)
    fitted = RankingPreferences.of(given.data)
    rows = fitted.data.of_one_length()
    world = World(fitted.coordinates, rows, fitted.of_coordinates)
    variance, feedbacks = float(np.mean(fitted.of_coordinates**2)), (Feedback.RANKING,)
    rng = np.random.default_rng([given.seed, 0])
    questions = Survey.of(world, feedbacks=feedbacks, count=count, prior_variance=variance, rng=rng)
    settings = {**fitted.settings(given.data), "list_size": rows.shape[1]}
    return _Lists(partial(_same, questions), variance, feedbacks, settings)


def dope(given: argparse.Namespace) -> Plan:
    """Return which lists to ask about."""
    asked = _lists(given)
    settings, variance = asked.settings, asked.prior_variance
    run = partial(
        design_loss.ranking_losses,
        seed=given.seed,
        questions=asked.questions,
        budgets=given.questions,
        answer_sets=ANSWER_SETS,
        prior_variance=variance,
    )
    source = f"{settings['lists']} lists of {settings['list_size']} items, {settings['features']} features"
    estimate = f"All methods estimate with the prior N(0, {variance:.3g} I)."
    axis = Axis("questions", _QUESTIONS, given.questions)
    mean = f"Each trial is the mean of {ANSWER_SETS} sets of questions and answers in one world."
    return Plan(
        name="dope",
        title=f"Dope: ranking loss by number of questions ({source})",
        panels=tuple(_dope_panel(way, feedback, axis) for way in ("drawn", "chosen") for feedback in asked.feedbacks),
        methods=design_loss.METHODS,
        jobs=one_job_a_trial(run, trials=given.trials),
        gathered=stack_trials,
        settings={
            **settings,
            "seed": given.seed,
            "trials": given.trials,
            "answer_sets": ANSWER_SETS,
            "prior_variance": variance,
            "noise_variance": design_loss.NOISE_VARIANCE,
            "medoids": design_loss.N_MEDOIDS,
        },
        targets=_dope_targets,
        across=2,
        notes=(_DRAWN, f"{estimate} {mean}"),
    )


def _dope_panel(way: str, feedback: Feedback, axis: Axis) -> Panel:
    kind = {Feedback.RATING: "ratings", Feedback.RANKING: "rankings"}[feedback]
    title = f"{kind.capitalize()}, questions {'drawn' if way == 'drawn' else 'chosen one by one'}"
    return Panel(f"{kind}_{way}", title, "ranking_loss", "ranking loss (wrong pairs a list)", axis)


def _dope_targets(results: Results) -> list[Target]:
    drawn, chosen = (p for p, panel in enumerate(results.plan.panels) if panel.key.startswith("rankings"))
    pairs = ((drawn, drawn), (chosen, drawn), (chosen, chosen))
    return [*best_everywhere(results), *(questions_saved(results, p, beside=beside) for p, beside in pairs)]


def _items(given: argparse.Namespace, rng: np.random.Generator) -> tuple[subset_loss.Items, dict[str, object]]:
    if given.data is None:
        settings: dict[str, object] = {"items": 100, "lists": 1, "features": 100, "theta": "normal, drawn in each run"}
        return subset_loss.clumped_answers(rng), settings
    fitted = RankingPreferences.of(given.data)
    items = subset_loss.Items.of(fitted.data.features, fitted.data.rows, theta=fitted.of_features)
    return items, fitted.settings(given.data)


def dopewolfe(given: argparse.Namespace) -> Plan:
    """Return which K of all items to ask about."""
    rng = np.random.default_rng([given.seed, 0])
    items, settings = _items(given, rng)
    sizes: Sequence[int] = given.list_sizes
    designed = {size: subset_loss.designs(items, subset_size=size, rng=rng) for size in sizes}
    sampled = [str(size) for size in sizes if items.subsets(size) > subset_loss.MOST_SUBSETS]
    axis = Axis("questions", _QUESTIONS, given.questions)
    seen = f"DBSCAN and m-medoids see {subset_loss.MOST_SUBSETS:,} random subsets where there are more"
    run = partial(
        subset_loss.losses_and_gains, seed=given.seed, items=items, designed=designed, budgets=given.questions
    )
    return Plan(
        name="dopewolfe",
        title=f"DopeWolfe: questions about K of {len(items.features)} items (features of rank {items.rank})",
        panels=(
            *(Panel(f"loss_{K}", f"K = {K}", "ranking_loss", _LOSS, axis) for K in sizes),
            *(Panel(f"ndcg_{K}", f"K = {K}", "ndcg", _GAIN, axis, lower_is_better=False) for K in sizes),
        ),
        methods=subset_loss.METHODS,
        jobs=one_job_a_trial(run, trials=given.trials),
        gathered=stack_trials,
        settings={
            **settings,
            "rank": items.rank,
            "seed": given.seed,
            "trials": given.trials,
            "prior_variance": items.prior_variance,
            "ndcg_depth": subset_loss.NDCG_DEPTH,
            "subsets": {f"K = {K}": items.subsets(K) for K in sizes},
            "support": {f"K = {K}": {name: len(one.lists) for name, one in designed[K].items()} for K in sizes},
        },
        targets=best_everywhere,
        across=len(sizes),
        notes=(f"{seen}: K = {', '.join(sampled) or 'none'}.",),
    )


def graded(given: argparse.Namespace) -> Plan:
    """Return what people's own rankings teach, with ties and without, by the size of a list."""
    rng = np.random.default_rng([given.seed, 0])
    items, feedbacks, sizes = graded_answers.embedded_answers(rng), graded_answers.FEEDBACKS, given.list_sizes
    designed = {
        one.key: {size: graded_answers.choose_lists(items, size=size, count=one.lists, rng=rng) for size in sizes}
        for one in feedbacks
    }
    axis = Axis("items_of_a_list", "items of a list, K", sizes)
    run = partial(graded_answers.losses_and_gains, seed=given.seed, items=items, designed=designed)
    titles = {one.key: f"{one.lists} lists, {'three grades' if one.is_graded else 'no ties'}" for one in feedbacks}
    return Plan(
        name="graded",
        title=f"People's own rankings of {len(items.features)} answers, without noise",
        panels=(
            *(Panel(f"loss_{key}", title, "ranking_loss", _LOSS, axis) for key, title in titles.items()),
            *(Panel(f"ndcg_{key}", title, "ndcg", _GAIN, axis, lower_is_better=False) for key, title in titles.items()),
        ),
        methods=graded_answers.METHODS,
        jobs=one_job_a_trial(run, trials=given.trials),
        gathered=stack_trials,
        settings={
            "features": items.rank,
            "seed": given.seed,
            "trials": given.trials,
            "prior_variance": items.prior_variance,
            "ndcg_depth": subset_loss.NDCG_DEPTH,
        },
        targets=best_everywhere,
        across=len(titles),
        notes=(
            "Ours chooses lists one by one, as a study does; the source takes the heaviest of its design.",
            "With grades the model learns from the pairs that a list orders, else from whole rankings.",
        ),
    )


_LOSS = "ranking loss (share of wrong pairs)"
_GAIN = f"NDCG@{subset_loss.NDCG_DEPTH} (1: the best order)"


def aggregation(given: argparse.Namespace) -> Plan:
    """Return rank aggregation with features, as the items become many."""
    axis = Axis("items", "items, n", given.items, log=True)
    run = partial(aggregation_growth.kendall_tau_distances, seed=given.seed, sizes=given.items, flips=_FLIPS)
    distance = "Kendall tau distance (share of pairs)"
    return Plan(
        name="aggregation",
        title="RABF: 50 log n comparisons of n items, 50 log n of them with corrupted features",
        panels=tuple(
            Panel(f"flips_{flip:g}", f"{flip:.0%} of the comparisons flipped", "kendall_tau_distance", distance, axis)
            for flip in _FLIPS
        ),
        methods=aggregation_growth.METHODS,
        jobs=one_job_a_trial(run, trials=given.trials),
        gathered=stack_trials,
        settings={
            "seed": given.seed,
            "trials": given.trials,
            "features": aggregation_growth.DIMENSION,
            "weights_ridge": 1.0,
            "residual_ridges": aggregation_growth.RESIDUAL_RIDGES,
        },
        targets=growth,
        notes=("Each method takes the ridge, of a few, that predicts held-out comparisons best.",),
    )
