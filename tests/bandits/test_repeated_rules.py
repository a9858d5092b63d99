"""What the check of a repeated request's slate by the rules of now costs, and where it is made."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.bandits.harness import NAME, request, running_worker
from tests.bandits.test_rules import LIKES, RULED, ruled_model
from tests.contracts.harness import MemoryStores, run

from topk_bandit.bandits import recommender
from topk_bandit.bandits.showable import SIZE_AT_ONCE, find_broken_rule, is_quickly_checked
from topk_bandit.domain.bandits import Item
from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import MAX_RULES, Apart, Count, Exclude, Filter, Group, SlateRule
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.learning.item_table import ItemTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from topk_bandit.domain.filters import Condition
    from topk_bandit.store.log import Store

LONG = " or ".join(["price < 90"] * (SIZE_AT_ONCE // 10))


@pytest.mark.parametrize(("text", "is_on_loop"), [("price < 90", True), (LONG, False)], ids=["short", "long"])
def test_a_repeated_slate_is_checked_where_slates_are_decided(
    monkeypatch: pytest.MonkeyPatch, text: str, *, is_on_loop: bool
) -> None:
    """Many rules would hold up all other calls on the event loop; a few take less than a thread's turn."""
    where: list[bool] = []

    def noted(*given: Any) -> Any:  # noqa: ANN401 - as the function has it
        where.append(threading.current_thread() is threading.main_thread())
        return find_broken_rule(*given)

    async def scenario(store: Store) -> None:
        async with running_worker(store) as worker:
            await worker.bandits.create_bandit(NAME, RULED)
            items = [Item(f"i{n}", features=Features.of(like)) for n, like in enumerate(LIKES)]
            await worker.bandits.upsert_items(NAME, items)
            asked = replace(request("r"), rules=(SlateRule(Filter(text)),))
            given = await worker.recommender.recommend(NAME, asked)
            assert not where
            assert await worker.recommender.recommend(NAME, asked) == given

    monkeypatch.setattr(recommender, "find_broken_rule", noted)
    run(MemoryStores(), scenario)
    assert where == [is_on_loop]


def test_the_check_asks_the_items_of_the_slate_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ruled_model(SlateRule(Filter("price < 5")), likes=LIKES * 30)
    asked = RecommendationRequest("r", (1.0, 0.5), None)
    sizes: list[int] = []

    def noted(table: ItemTable, condition: Condition, meet: Callable[..., NDArray[Any]] = ItemTable.meet) -> Any:  # noqa: ANN401
        sizes.append(len(table))
        return meet(table, condition)

    monkeypatch.setattr(ItemTable, "meet", noted)
    given = _Given(("i3", "i60", "i1"))
    assert find_broken_rule(model, asked, given) is None
    assert find_broken_rule(model, asked, _Given(("i3", "i60", "i5"))) == Filter("price < 5")
    assert sizes == [3, 3]


class _Given:
    """What of a recommendation is checked."""

    def __init__(self, slate: tuple[str, ...]) -> None:
        self.slate, self.relaxed = slate, ()


def test_only_short_checks_are_for_the_event_loop() -> None:
    model = ruled_model(likes=LIKES)

    def is_quick(*rules: Any) -> bool:  # noqa: ANN401 - rules of each kind
        return is_quickly_checked(
            model, RecommendationRequest("r", (1.0, 0.5), None, rules=tuple(map(SlateRule, rules)))
        )

    assert is_quick()
    assert is_quick(Filter("price < 5"), Count(Group("category"), most=2), Apart(Group("category")))
    assert not is_quick(*[Apart(Group("category"))] * MAX_RULES)
    assert is_quick(Exclude(tuple(f"i{n}" for n in range(SIZE_AT_ONCE))))
    assert not is_quick(Exclude(tuple(f"i{n}" for n in range(SIZE_AT_ONCE + 1))))
    assert not is_quick(Filter(LONG))
