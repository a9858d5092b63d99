"""What rules cost is bounded for a request, however many types of items there are."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest

from topk_bandit.domain.errors import ExhaustedError, NotReadyError
from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import MAX_RULES, Apart, Count, Filter, Group, SlateRule
from topk_bandit.learning.item_table import ItemTable
from topk_bandit.learning.relaxed_rules import relax_rules
from topk_bandit.learning.slate_rules import Candidates, Effort

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


def test_rules_of_named_candidates_cost_by_these_however_many_items_there_are() -> None:
    """As many rules as there may be, each of which is given up; with a catalogue 50 times as large it is the same."""
    n_items = 100_000
    table = ItemTable.of([str(n) for n in range(n_items)], [Features((("cat", f"c{n % 7}"),)) for n in range(n_items)])
    named = Candidates(table, np.arange(0, 1_400, 7))
    rules = [SlateRule(Count(Group("cat", "c1"), 1), may_relax=n > 1) for n in range(MAX_RULES)]
    with pytest.raises(NotReadyError, match="no slate keeps"):
        relax_rules(rules, named, 6)


def test_long_filters_count_by_their_letters(candidates: Candidates) -> None:
    """One of 4,000 takes some tens of milliseconds of 100,000 items, a short one less than one."""
    text = " or ".join(["brand == 'none'"] * 200)
    short, long = Effort(), Effort()
    left = short._left
    short.spend_on_items([Filter("brand == 'b1'")], candidates)
    long.spend_on_items([Filter(text)], candidates)
    assert left - short._left < 2 * N_ITEMS // 8 + N_ITEMS // 100
    assert left - long._left > N_ITEMS // 2
