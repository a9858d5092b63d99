"""Rules that are given up and slates that are mended, against a list of all slates."""

from __future__ import annotations

import numpy as np
import pytest
from tests.learning.ruled import Shop, allowed, draw_rules

from topk_bandit.domain.errors import NotReadyError
from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import Count, Exclude, Group, SlateRule
from topk_bandit.learning.rankings import all_rankings
from topk_bandit.learning.relaxed_rules import complete_slate, relax_rules
from topk_bandit.learning.slate_rules import compile_rules, find_slate, keep_rules


@pytest.mark.parametrize(("n_items", "slate_size"), [(7, 3), (6, 4), (4, 4)])
def test_a_slate_is_mended_as_by_enumeration(n_items: int, slate_size: int) -> None:
    mended = 0
    everything = all_rankings(np.arange(n_items), slate_size=slate_size)
    for seed in range(60):
        rng = np.random.default_rng([seed, n_items])
        shop = Shop.draw(n_items, rng)
        rules = draw_rules(shop, slate_size, rng)
        kept = everything[np.array([allowed(rule, shop, everything) for rule in rules]).all(axis=0)]
        compiled = compile_rules(rules, shop.candidates, slate_size)
        if compiled is None:
            assert not len(kept)
            continue
        for slate in everything[rng.choice(len(everything), size=6)]:
            places = np.array([np.flatnonzero(compiled.places == item).max(initial=-1) for item in slate])
            found = complete_slate(compiled.rules, places)
            assert (found is not None) == bool(len(kept))
            if found is None:
                continue
            assert keep_rules(compiled.rules, found[None]).all()
            stays = compiled.places[found] == slate
            same = kept == slate
            assert stays.sum() == same.sum(axis=1).max()
            # Among equal ones the earliest positions are kept.
            assert tuple(stays) == max(map(tuple, same[same.sum(axis=1) == stays.sum()]))
            assert not (kept == slate).all(axis=1).any() or stays.all()
            mended += not stays.all()
    assert mended > 20


def test_an_item_that_is_not_left_is_replaced() -> None:
    compiled = compile_rules([Exclude(("b",))], Shop(list("abcde"), [Features()] * 5).candidates, 3)
    assert compiled is not None
    assert complete_slate(compiled.rules, np.array([3, -1, 0])).tolist() == [3, 1, 0]  # type: ignore[union-attr]
    assert complete_slate(compiled.rules, np.array([-1, -1, -1])) is not None


def test_a_slate_of_one_kind_is_mended_without_trying_all_of_its_parts() -> None:
    features = [Features.of({"category": "soup" if n < 12 else f"other {n}"}) for n in range(30)]
    shop = Shop([f"i{n}" for n in range(30)], features)
    compiled = compile_rules([Count(Group("category"), most=1)], shop.candidates, 12)
    assert compiled is not None
    mended = complete_slate(compiled.rules, np.arange(12))
    assert mended is not None
    assert mended[0] == 0
    assert (mended[1:] >= 12).all()


@pytest.mark.parametrize("slate_size", [1, 3])
def test_rules_are_given_up_from_the_last_one_on(slate_size: int) -> None:
    everything = all_rankings(np.arange(6), slate_size=slate_size)
    given_up = clashes = 0
    for seed in range(250):
        rng = np.random.default_rng([seed, slate_size])
        shop = Shop.draw(6, rng)
        rules = [SlateRule(rule, may_relax=rng.random() < 0.5) for rule in draw_rules(shop, slate_size, rng, most=6)]
        by_rule = np.array([allowed(declared.rule, shop, everything) for declared in rules])
        left = list(range(len(rules)))
        while not by_rule[left].all(axis=0).any() and any(rules[place].may_relax for place in left):
            left.remove(max(place for place in left if rules[place].may_relax))
        if not by_rule[left].all(axis=0).any():
            clashes += 1
            with pytest.raises(NotReadyError) as refused:
                relax_rules(rules, shop.candidates, slate_size, own=len(rules))
            named = [place for place in range(len(rules)) if f"bandit.rules[{place}]: " in str(refused.value)]
            assert named
            assert set(named) <= set(left)
            assert not by_rule[named].all(axis=0).any()
            continue
        relaxed = relax_rules(rules, shop.candidates, slate_size)
        assert list(relaxed.kept) == left
        assert sorted(relaxed.kept + relaxed.given_up) == list(range(len(rules)))
        assert relaxed.allowed.count == by_rule[left].all(axis=0).sum()
        assert relaxed.allowed.first is not None
        first = relaxed.places[relaxed.allowed.first]
        assert all(allowed(rules[place].rule, shop, first[None]).all() for place in left)
        given_up += bool(relaxed.given_up)
    assert min(given_up, clashes) >= 5


def test_nothing_is_given_up_where_all_is_kept() -> None:
    shop = Shop(list("abcd"), [Features()] * 4)
    relaxed = relax_rules([SlateRule(Exclude(("a",)), may_relax=True)], shop.candidates, 3)
    assert (relaxed.kept, relaxed.given_up, relaxed.places.tolist()) == ((0,), (), [1, 2, 3])
    none = relax_rules([], shop.candidates, 3)
    assert find_slate(none.allowed.rules) is not None
