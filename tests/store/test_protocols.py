"""Each store has its protocol by name, so that a type checker and a reader find what it lacks."""

from __future__ import annotations

import inspect

import pytest

from topk_bandit.store.log import Store
from topk_bandit.store.memory.bandits import MemoryStore
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.redis.studies import RedisStudies
from topk_bandit.store.study_log import StudyStore


@pytest.mark.parametrize(
    ("store", "protocol"),
    [(MemoryStore, Store), (RedisStore, Store), (MemoryStudies, StudyStore), (RedisStudies, StudyStore)],
)
def test_a_store_has_every_call_of_its_protocol(store: type, protocol: type) -> None:
    assert protocol in store.__mro__
    assert getattr(store, "__final__", False), "mypy holds only final classes to be complete"
    calls = {name: call for name, call in vars(protocol).items() if inspect.isfunction(call) and name[0] != "_"}
    assert len(calls) >= 10
    for name, call in calls.items():
        own = getattr(store, name)
        assert own is not call, f"{store.__name__} lacks {name}"
        assert list(inspect.signature(own).parameters) == list(inspect.signature(call).parameters)
