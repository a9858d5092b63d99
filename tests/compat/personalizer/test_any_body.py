"""Bodies of any JSON: each is answered or refused, and none is a failure of the listener."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.compat.personalizer.listeners import KEY, opened, rank_body, slots_body
from yarl import URL

from topk_bandit.compat.personalizer.server import KEY_HEADER

HALF = "\ud800"
"""Half a character, which JSON can write and no text can hold."""

texts = st.text(max_size=20) | st.just(HALF)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4))
lists = st.lists(st.dictionaries(texts, values, max_size=4), max_size=3)
actions = st.lists(st.fixed_dictionaries({"id": texts, "features": lists}), min_size=1, max_size=5)
bodies = st.one_of(
    values,
    st.builds(lambda some: {**rank_body(), **some}, st.fixed_dictionaries({}, optional={"contextFeatures": lists})),
    st.builds(lambda some, features: rank_body(actions=some, contextFeatures=features), actions, lists),
    st.builds(lambda some, event: slots_body(actions=some, eventId=event), actions, texts),
    st.builds(lambda name, value: slots_body(**{name: value}), st.sampled_from(sorted(slots_body())), values),
    st.builds(lambda name, value: rank_body(**{name: value}), st.sampled_from(sorted(rank_body())), values),
)


@pytest.mark.slow
@given(st.lists(bodies, min_size=1, max_size=12))
def test_whatever_comes_is_answered_or_refused(bodies: list[Any]) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            for body in bodies:
                for path in ("v1.0/rank", "v1.1-preview.1/multislot/rank", "v1.0/events/e/reward"):
                    answer = await listener.post(path, raw=json.dumps(body).encode())
                    assert answer.status in {201, 400, 404}, (path, body, answer)
                    assert answer.status == 201 or answer.error

    asyncio.run(scenario())


def test_half_a_character_is_no_text() -> None:
    async def scenario() -> None:
        async with opened() as listener:
            for changed in ({"eventId": HALF}, {"contextFeatures": [{"a": {HALF: 1}}]}, {"actions": [{"id": HALF}]}):
                answer = await listener.post("v1.0/rank", raw=json.dumps(rank_body(**changed)).encode())
                assert (answer.status, answer.error["target"]) == (400, "body")
            whole = await listener.post("v1.0/rank", raw=json.dumps(rank_body(eventId="\U0001f375")).encode())
            assert (whole.status, whole.body["eventId"]) == (201, "\U0001f375")
            async with listener.session.post(
                URL(f"{listener.base}/v1.0/events/%ED%A0%80/activate", encoded=True), headers={KEY_HEADER: KEY}
            ) as answer:
                assert answer.status == 404

    asyncio.run(scenario())
