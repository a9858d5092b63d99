"""What rules cost is bounded for a request, however many types of items there are."""

from __future__ import annotations

from time import process_time

import pytest

from topk_bandit.domain.errors import ExhaustedError
from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import Apart, Count, Group, SlateRule
from topk_bandit.learning.item_table import ItemTable
from topk_bandit.learning.relaxed_rules import relax_rules
from topk_bandit.learning.slate_rules import Candidates

N_ITEMS = 2_000


@pytest.fixture(scope="module")
def candidates() -> Candidates:
    features = [Features.of({"brand": f"b{n % 1_000}", "cat": f"c{n % 7}"}) for n in range(N_ITEMS)]
    return Candidates(ItemTable.of([str(n) for n in range(N_ITEMS)], features))


@pytest.mark.parametrize("may_relax", [False, True])
def test_rules_of_many_types_that_clash_are_refused_in_seconds(candidates: Candidates, *, may_relax: bool) -> None:
    one_of_each = [Count(Group("cat", f"c{n}"), 1) for n in range(7)]
    rules = [SlateRule(Apart(Group("brand")), may_relax), *(SlateRule(one) for one in one_of_each)]
    begin = process_time()
    with pytest.raises(ExhaustedError, match="takes too long") as refused:
        relax_rules(rules, candidates, 6)
    assert refused.value.retry_after is None  # a client that sends it again would be refused again
    assert process_time() - begin < 20.0


def test_slates_of_thousands_of_types_are_not_counted(candidates: Candidates) -> None:
    rules = [SlateRule(Count(Group("brand"), 0, 1))]
    begin = process_time()
    allowed = relax_rules(rules, candidates, 6).allowed
    assert allowed.first is not None
    assert allowed.count is None
    assert process_time() - begin < 10.0
