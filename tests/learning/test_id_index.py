"""Ids in arrays, against a dict: whichever way they are asked for, however many, and also where hashes are equal."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as some

from topk_bandit.learning import id_index
from topk_bandit.learning.id_index import NO_IDS, NOWHERE, IdIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pytest

TEXTS = some.text(some.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


def found(index: IdIndex, ids: Sequence[str]) -> list[int]:
    """Return where ids are, asked for one by one and all at once."""
    single = [int(index.find((item_id,))[0]) for item_id in ids]
    padding = ["a text that is no id"] * id_index._MANY
    assert index.find([*ids, *padding]).tolist() == single + [NOWHERE] * len(padding)
    return single


@given(some.lists(TEXTS, unique=True, max_size=30), some.lists(TEXTS, max_size=30), some.randoms(use_true_random=False))
def test_places_are_those_of_a_dict(known: list[str], others: list[str], random: np.random.Generator) -> None:
    ids: list[str | None] = [*known, *[None] * (len(known) // 3)]
    random.shuffle(ids)
    index, places = IdIndex.of(ids), {item_id: place for place, item_id in enumerate(ids) if item_id is not None}
    assert (index.ids, len(index), index.n_places) == (tuple(ids), len(known), len(ids))
    assert found(index, known + others) == [places.get(item_id, NOWHERE) for item_id in known + others]
    assert index.ids_at(index.find(known)) == tuple(known)
    assert pickle.loads(pickle.dumps(index)).ids == index.ids


def test_ids_of_equal_hashes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of the same length differ in their last letter alone, and others have no place."""
    monkeypatch.setattr(id_index, "hash", lambda text: len(text) % 2, raising=False)
    ids = [f"item-{number:03}" for number in range(200)] + ["", "x", "tea", "tee"]
    index = IdIndex.of(ids)
    assert found(index, [*ids, "item-200", "te", "y"]) == [*range(len(ids)), NOWHERE, NOWHERE, NOWHERE]


def test_nothing_is_found_where_there_is_nothing() -> None:
    assert found(NO_IDS, ["tea"]) == [NOWHERE]
    assert found(IdIndex.of([None, None]), ["tea"]) == [NOWHERE]
    assert NO_IDS.find(()).tolist() == []


def test_an_id_takes_little_beside_its_text() -> None:
    ids = [f"item-{number:06}" for number in range(1000)]
    assert IdIndex.of(ids).nbytes <= sum(map(len, ids)) + 22 * len(ids)
