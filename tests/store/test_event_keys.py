"""The names by which events are looked up are those of their recommendations and groups, whatever the event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.store.test_codec import EVENTS

from topk_bandit.domain.errors import CorruptDataError
from topk_bandit.store.codec import encode_event
from topk_bandit.store.data_versions import NEWEST
from topk_bandit.store.event_keys import find_keys, group_key, recommendation_key
from topk_bandit.store.events import Event, Recommended


@pytest.mark.parametrize("event", EVENTS, ids=lambda one: type(one).__name__)
def test_names_of_an_event_are_those_that_its_fields_have(event: Event) -> None:
    expected = []
    if isinstance(event, Recommended):
        expected.append(recommendation_key(event.recommendation.recommendation_id))
        expected += [group_key(event.request.group_key)] if event.request.group_key else []
    elif name := getattr(event, "recommendation_id", ""):
        expected.append(recommendation_key(name))
    assert find_keys(encode_event(event, NEWEST)) == expected


def test_each_kind_of_name_is_there() -> None:
    event = next(one for one in EVENTS if isinstance(one, Recommended))
    grouped = replace(event, request=replace(event.request, group_key='a "visitor" é'))
    names = [recommendation_key(event.recommendation.recommendation_id), group_key('a "visitor" é')]
    assert find_keys(encode_event(grouped, NEWEST)) == names
    assert recommendation_key("one").digest != group_key("one").digest


def test_what_is_no_event_is_refused() -> None:
    for text in (b"", b"{", b'{"recommendation_id": 7}', b"[]"):
        with pytest.raises(CorruptDataError, match="no event"):
            find_keys(text)
