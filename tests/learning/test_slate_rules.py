"""Compiled rules, against the words of each rule asked of every slate."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from tests.learning.ruled import SCHEMA, Shop, allowed, draw_counted, draw_rules, members_of, single_groups

from topk_bandit.domain.errors import ExhaustedError, NotReadyError
from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import Apart, Count, Group, Pin, check_rules
from topk_bandit.learning import slate_rules
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.slate_rules import (
    compile_rules,
    find_clash,
    find_slate,
    keep_rules,
    refuse_clash,
    shows_group,
)


@pytest.mark.parametrize(("n_items", "slate_size", "sets"), [(7, 3, 400), (6, 4, 150), (5, 1, 50), (4, 4, 100)])
def test_what_is_allowed_and_what_clashes_is_as_by_enumeration(n_items: int, slate_size: int, sets: int) -> None:
    everything = all_rankings(np.arange(n_items), slate_size=slate_size)
    clashes = 0
    for seed in range(sets):
        rng = np.random.default_rng([seed, n_items])
        shop = Shop.draw(n_items, rng)
        rules = draw_rules(shop, slate_size, rng)
        check_rules(rules, SCHEMA, slate_size)
        by_rule = np.array([allowed(rule, shop, everything) for rule in rules])
        kept = {tuple(slate) for slate in everything[by_rule.all(axis=0)].tolist()}
        compiled = compile_rules(rules, shop.candidates, slate_size)
        if compiled is None:
            assert not kept
        else:
            by_places = np.array(list(permutations(range(len(compiled.places)), slate_size)), dtype=np.int64)
            by_places = by_places.reshape(-1, slate_size)
            slates = compiled.places[by_places[keep_rules(compiled.rules, by_places)]]
            assert {tuple(slate) for slate in slates.tolist()} == kept
            found = find_slate(compiled.rules)
            assert (found is not None) == bool(kept)
            assert found is None or tuple(compiled.places[found].tolist()) in kept
        clash = list(find_clash(rules, shop.candidates, slate_size))
        assert bool(clash) == (not kept)
        clashes += bool(clash)
        if clash:
            assert not by_rule[clash].all(axis=0).any()
            assert all(np.delete(by_rule[clash], n, axis=0).all(axis=0).any() for n in range(len(clash)))
    assert 0 < clashes < sets


def test_a_slate_shows_a_group_if_one_of_its_items_is_of_it() -> None:
    found = set()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        shop = Shop.draw(9, rng)
        named = tuple(map(str, rng.choice(shop.item_ids, size=2, replace=False)))
        group = Group(item_ids=named) if rng.random() < 0.2 else draw_counted(rng)
        slate = rng.permutation(9)[:3]
        expected = any(not members_of(one, shop).isdisjoint(slate.tolist()) for one in single_groups(group))
        assert shows_group(group, shop.candidates, slate) == expected
        found.add((bool(group.item_ids), bool(group.shown_fewer_than), group.is_one, expected))
    assert len(found) == 8  # a group of each kind, and a slate with and without it


def test_rules_among_fewer_items_are_those_of_these() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        shop = Shop.draw(9, rng)
        compiled = compile_rules(draw_rules(shop, 3, rng), shop.candidates, 3)
        if compiled is None or len(compiled.places) < 6:
            continue
        some = np.sort(rng.choice(len(compiled.places), size=5, replace=False))
        slates = np.array(list(permutations(range(len(some)), 3)))
        fewer = keep_rules(compiled.rules.among(some), slates)
        assert fewer.tolist() == keep_rules(compiled.rules, some[slates]).tolist()


def test_a_clash_is_named() -> None:
    soups = [Features.of({"category": "soup"})] * 4
    rules = [Count(Group("tags"), most=1), Count(Group("category", "soup"), most=1), Pin(("b",), 0)]
    clash = find_clash(rules, Shop(list("abcd"), soups).candidates, 2)
    assert clash == (1,)
    with pytest.raises(NotReadyError, match=r"^no slate keeps rules\[1\]: at most 1 of category soup$") as refused:
        refuse_clash(rules, clash)
    assert refused.value.reason == "RULES_CLASH"
    refuse_clash(rules, ())


def test_a_question_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three of each of two kinds that must alternate, with one kind pinned at both ends.
    items = [Features.of({"category": "soup" if n % 2 else "cake", "tags": ("new",) * (n % 3 == 0)}) for n in range(12)]
    rules = [Apart(Group("category")), Apart(Group("tags")), Pin(("i0",), 0), Pin(("i6",), 5)]
    candidates = Shop([f"i{n}" for n in range(12)], items).candidates
    assert find_clash(rules, candidates, 6) == (0, 2, 3)
    monkeypatch.setattr(slate_rules, "MOST_CASES", 3)
    with pytest.raises(ExhaustedError, match="too long"):
        find_clash(rules, candidates, 6)
