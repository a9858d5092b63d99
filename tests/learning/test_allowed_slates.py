"""Counts and draws of the slates that rules allow, against a list of all slates."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.stats import chisquare
from tests.learning.ruled import Shop, draw_rules

from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import Apart, Count, Group, Pin, Rule
from topk_bandit.learning import allowed_slates
from topk_bandit.learning.allowed_slates import AllowedSlates
from topk_bandit.learning.slate_rules import compile_rules, find_slate, keep_rules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topk_bandit.learning.slate_rules import SlateRules


def listed(rules: SlateRules) -> NDArray[np.int64]:
    """Return all slates that keep rules."""
    every = np.array(list(permutations(range(len(rules.groups)), len(rules.admits))), dtype=np.int64)
    return every[keep_rules(rules, every)]


def compiled(rules: list[Rule], shop: Shop, slate_size: int) -> SlateRules | None:
    """Return rules over the items that they leave, None if no slate keeps them."""
    made = compile_rules(rules, shop.candidates, slate_size)
    return None if made is None or find_slate(made.rules) is None else made.rules


def brands(count: int, each: int) -> Shop:
    features = [Features.of({"category": f"b{n}"}) for n in range(count) for _ in range(each)]
    return Shop([f"i{n}" for n in range(len(features))], features)


@pytest.mark.parametrize(("n_items", "slate_size"), [(7, 3), (7, 4), (4, 4), (5, 1)])
def test_counts_and_shares_of_positions_are_those_of_the_list(n_items: int, slate_size: int) -> None:
    counted = 0
    for seed in range(80):
        rng = np.random.default_rng([seed, n_items])
        shop = Shop.draw(n_items, rng)
        rules = compiled(draw_rules(shop, slate_size, rng), shop, slate_size)
        if rules is None:
            continue
        slates, allowed = listed(rules), AllowedSlates(rules)
        assert allowed.count == len(slates)
        for position in range(slate_size):
            shares = np.bincount(slates[:, position], minlength=len(rules.groups)) / len(slates)
            np.testing.assert_allclose(allowed.position_shares[position], shares, atol=1e-12)
        counted += 1
    assert counted > 20


ALIKE: list[tuple[Shop, list[Rule]]] = [
    (brands(4, 2), [Count(Group("category"), most=1)]),
    (brands(4, 2), [Apart(Group("category"))]),
    (brands(3, 3), [Apart(Group("category")), Count(Group("category"), most=2)]),
    (brands(4, 2), [Apart(Group("category")), Pin(("i3",), 1)]),
    (brands(4, 2), [Apart(Group("category")), Count(Group("category", "b0"), least=2)]),
]


@pytest.mark.parametrize(("shop", "rules"), ALIKE)
def test_types_that_are_alike_are_counted_as_one_by_one(shop: Shop, rules: list[Rule]) -> None:
    made = compiled(rules, shop, 4)
    assert made is not None
    slates, allowed = listed(made), AllowedSlates(made)
    assert allowed.count == len(slates)
    for position in range(4):
        shares = np.bincount(slates[:, position], minlength=len(made.groups)) / len(slates)
        np.testing.assert_allclose(allowed.position_shares[position], shares, atol=1e-12)


@pytest.mark.parametrize(("shop", "rules"), [*ALIKE[1:], (brands(2, 3), [Pin(("i1",), 2)])])
def test_each_allowed_slate_is_drawn_as_often(shop: Shop, rules: list[Rule]) -> None:
    made = compiled(rules, shop, 3)
    assert made is not None
    slates, allowed, rng = listed(made), AllowedSlates(made), np.random.default_rng(5)
    drawn = Counter(tuple(allowed.draw(rng).tolist()) for _ in range(3_000))
    assert set(drawn) <= {tuple(slate) for slate in slates.tolist()}
    assert chisquare([drawn[tuple(slate)] for slate in slates.tolist()]).pvalue > 1e-3


def test_two_of_each_of_twenty_brands_are_counted() -> None:
    made = compiled([Count(Group("category"), most=2)], brands(20, 5), 6)
    assert made is not None
    # By sets: the coefficient of x^6 in (1 + 5 x + 10 x^2)^20, in any order.
    expected = round(np.polynomial.polynomial.polypow([1.0, 5.0, 10.0], 20)[6]) * math.factorial(6)
    assert AllowedSlates(made).count == expected
    apart = compiled([Count(Group("category"), most=1), Apart(Group("category"))], brands(20, 5), 6)
    assert apart is not None
    assert AllowedSlates(apart).count == math.perm(20, 6) * 5**6


def test_what_has_too_many_states_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled([Apart(Group("category"))], brands(4, 2), 4)
    assert made is not None
    n_states = next(n for n in range(1, 1000) if _counted_with(made, n, monkeypatch))
    assert 5 < n_states < 60


def _counted_with(rules: SlateRules, most: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(allowed_slates, "MOST_STATES", most)
    return AllowedSlates(rules).count is not None
