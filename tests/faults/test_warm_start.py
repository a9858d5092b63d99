"""The whole way over the wire: people are asked, and a bandit without a single reward shows what they like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.faults.service import serving
from tests.waiting import PATIENCE

from topk_bandit.client import AnswerKind, InvalidArgument, RewardOutcome

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from topk_bandit.client import Client

RNG = np.random.default_rng(11)
ITEMS = {f"item-{number}": row for number, row in enumerate(RNG.normal(size=(10, 3)))}
TASTES = 4.0 * RNG.normal(size=(2, 3))
"""How much a customer likes an item: context' TASTES features."""


def utilities(context: NDArray[np.float64]) -> dict[str, float]:
    return {item_id: float(context @ TASTES @ features) for item_id, features in ITEMS.items()}


def ask_people(client: Client, *, count: int, queries: dict[str, NDArray[np.float64]]) -> None:
    """Ask people who rank as their utilities are, for their own query."""
    answers = {}
    for question in client.next_questions("tastes", count).questions:
        liked = utilities(queries[question.query])
        answers[question.id] = sorted(question.items, key=lambda item_id, liked=liked: -liked[item_id])
    assert len(client.submit_answers("tastes", answers).outcomes) == count


def first_slate(client: Client, bandit: str, context: NDArray[np.float64]) -> list[str]:
    return list(client.recommend(bandit, context.tolist()).items)


def preferred(client: Client, query: str) -> list[str]:
    """Return the items that the study puts first for a query."""
    [learned] = [one for one in client.get_preferences("tastes").queries if one.query == query]
    return [item.id for item in sorted(learned.items, key=lambda item: item.rank)]


def test_a_study_a_restart_and_a_bandit_that_follows_it(folder: Path) -> None:
    queries = {f"q{number}": row for number, row in enumerate(RNG.normal(size=(6, 2)))}
    with serving(folder) as service:
        with service.client() as client:
            client.create_study(
                "tastes", ITEMS, answer_kind=AnswerKind.RANKING, list_size=4, budget=60, queries=queries
            )
            client.wait_for_design("tastes", timeout=PATIENCE)
            client.create_bandit(
                "home", slate_size=3, item_capacity=12, context_dimension=2, uniform_share=0.0, near_share=0.0
            )
            client.upsert_items("home", list(ITEMS))
            with pytest.raises(InvalidArgument, match="no answers yet"):
                client.update_bandit("home", prior_study="tastes")
            with pytest.raises(InvalidArgument, match="prior_study"):
                client.update_bandit("home", prior_study="nothing")
            assert client.get_bandit("home").prior_study is None
            ask_people(client, count=30, queries=queries)
            assert client.update_bandit("home", prior_study="tastes").prior_study == "tastes"
            for number, (query, context) in enumerate(queries.items()):
                slate = first_slate(client, "home", context)
                # Slates that await their reward make the next ones look a little elsewhere.
                assert slate[0] in preferred(client, query)[: 1 if number == 0 else 2]
                assert set(slate) <= set(preferred(client, query)[:5])
        service.kill_everything()
        service.start()
        with service.client() as client:
            assert client.get_bandit("home").prior_study == "tastes"
            wide = {"slate_size": 3, "item_capacity": 12, "uniform_share": 0.0, "near_share": 0.0}
            with pytest.raises(InvalidArgument, match="prior_study"):
                client.create_bandit("narrow", context_dimension=3, prior_study="tastes", **wide)
            client.create_bandit("other", context_dimension=2, prior_study="tastes", **wide)
            client.upsert_items("other", list(ITEMS))
            for query, context in queries.items():
                # Its second slates are others, since the first ones still await their reward, but not any.
                assert set(first_slate(client, "home", context)) <= set(preferred(client, query)[:6])
            context = next(iter(queries.values()))
            assert first_slate(client, "other", context) == preferred(client, "q0")[:3]
            given = client.recommend("other", context.tolist())
            assert client.reward("other", given.id, 1.0).outcome is RewardOutcome.ACCEPTED
            ask_people(client, count=30, queries=queries)
            client.delete_study("tastes")
            assert client.get_bandit("other").prior_study == "tastes"
            assert client.stats("other").prior_slope > 0.0
            assert client.update_bandit("other", prior_study=None).prior_study is None
            assert (client.stats("other").observation_count, client.stats("other").prior_slope) == (1, 0.0)
