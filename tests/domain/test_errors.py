"""The error tree: drawn as it is, and whole after a trip to another process."""

from __future__ import annotations

import pickle

import pytest

from topk_bandit.domain import errors
from topk_bandit.domain.quotas import Quota

EXAMPLES = [
    errors.InvalidArgumentError("context[3]", "is not finite"),
    errors.NotFoundError("tenants/acme/bandits/home"),
    errors.ConflictError("REWARD_EXISTS", "another value was accepted"),
    errors.ExhaustedError("STORE_FULL", "the store is full", retry_after=3.0),
    errors.QuotaError(Quota.ITEMS, "acme", limit=10, used=9, retry_after=1.0),
    errors.UnavailableError("the store is away", retry_after=0.25),
    errors.NotDurableError("written, but not to the disk", retry_after=0.25),
    errors.NotPermittedError("the store's user lacks a permission: no permissions to run the 'xadd' command"),
    errors.NewerDataError("the store has data of version 2"),
    errors.CorruptDataError("a snapshot is cut short"),
    errors.NotReadyError("DESIGN_UNFINISHED", "the design is not done"),
    errors.ConfigurationError("workers: 0 is not between 1 and 256"),
    errors.OutdatedError("the store's data version is 2"),
    errors.UnauthenticatedError(),
    errors.ForbiddenError("SCOPE_NEEDED", "a key with the scope manage is needed"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_crosses_a_process_whole(error: errors.TopkBanditError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_error_has_an_example_and_a_place_in_the_drawing() -> None:
    names = {type(error).__name__ for error in EXAMPLES}
    there = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert names == there - {"TopkBanditError"}
    drawing = errors.__doc__ or ""
    assert all(name in drawing for name in there)


def test_an_error_is_placed_below_the_path_of_its_field() -> None:
    with pytest.raises(errors.InvalidArgumentError) as raised, errors.errors_below("rows[2]"):
        raise errors.InvalidArgumentError("context[3]", "is not finite")
    assert str(raised.value) == "rows[2].context[3]: is not finite"


def test_messages_are_for_people() -> None:
    assert [str(error) for error in EXAMPLES[:4]] == [
        "context[3]: is not finite",
        "tenants/acme/bandits/home not found",
        "another value was accepted",
        "the store is full",
    ]
