"""How many values the JSON of a request may hold: as many as its fields may, and no more is parsed.

Values are counted before anything is parsed, by what separates them. A body of a few kilobytes of ones would otherwise
keep a worker for seconds.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from topk_bandit.domain.bandits import MAX_CONTEXT_DIMENSION, MAX_CONTEXT_WIDTH, MAX_SLATE_SIZE
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.rules import MAX_EXCLUDED, MAX_GROUPED, MAX_PINNED, MAX_RULES
from topk_bandit.domain.studies import MAX_GIVEN_LISTS, MAX_LIST_SIZE
from topk_bandit.rpc import fields
from topk_bandit.rpc.converters import MAX_BATCH, MAX_EXPLAINED, MAX_SLATES
from topk_bandit.rpc.features import MAX_FEATURES, MAX_LABELS
from topk_bandit.rpc.imports import MAX_ROWS
from topk_bandit.rpc.json_parsing import LIBRARYS_OWN
from topk_bandit.rpc.line_imports import MAX_LINES
from topk_bandit.rpc.placements import MAX_PLACEMENTS
from topk_bandit.rpc.study_converters import MAX_ANSWERS, MAX_STUDY_QUERIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor, FieldDescriptor

__all__ = ["FEWEST", "MOST_OF_FIELDS", "check_size", "most_values"]

_MOST = 700_000
"""Where fields may hold more than fits into the largest body: what is parsed in some 20 ms."""

_COUNTED_AT_ONCE = 1 << 16
_ESCAPED = re.compile(rb"\\.", re.DOTALL)

FEWEST = 1000
"""So many are parsed of any message, so that the error of a small one says what is wrong with it."""

MOST_OF_FIELDS: dict[str, int] = {
    "ActivateRequest.shown_item_ids": MAX_SLATE_SIZE,
    "AmendRewardRequest.item_values": MAX_SLATE_SIZE,
    "Bandit.baseline_item_ids": MAX_SLATE_SIZE,
    "BatchRecommendRequest.requests": MAX_SLATES,
    "BatchRewardRequest.rewards": MAX_BATCH,
    "Bandit.rules": MAX_RULES,
    "CategoricalFeature.values": MAX_CONTEXT_WIDTH,
    "ExcludedItems.item_ids": -(-MAX_EXCLUDED // MAX_RULES),  # of each of so many rules: they share what they exclude
    "ExplainRecommendationRequest.explain_item_ids": MAX_EXPLAINED,
    "FeatureSchema.features": MAX_FEATURES,
    "ImportAnswersRequest.rows": MAX_ROWS,
    "ImportEventsRequest.lines": MAX_LINES,
    "ImportObservationsRequest.rows": MAX_ROWS,
    "ImportStudyRequest.lines": MAX_LINES,
    "Item.features": MAX_FEATURES,
    "LabelSetFeature.values": MAX_CONTEXT_WIDTH,
    "ItemGroup.item_ids": MAX_GROUPED,
    "Labels.values": MAX_LABELS,
    "ListTopSlatesRequest.context": MAX_CONTEXT_DIMENSION,
    "ListTopSlatesRequest.features": MAX_FEATURES,
    "Numbers.values": MAX_CONTEXT_WIDTH,
    "PastAnswer.item_ids": MAX_LIST_SIZE,
    "PastObservation.context": MAX_CONTEXT_DIMENSION,
    "PastObservation.features": MAX_FEATURES,
    "PastObservation.item_ids": MAX_SLATE_SIZE,
    "PastObservation.item_values": MAX_SLATE_SIZE,
    "PinnedItems.item_ids": MAX_PINNED,
    "RankingAnswer.item_ids": MAX_LIST_SIZE,
    "RatingsAnswer.ratings": MAX_LIST_SIZE,
    "RecommendPageRequest.context": MAX_CONTEXT_DIMENSION,
    "RecommendPageRequest.features": MAX_FEATURES,
    "RecommendPageRequest.placements": MAX_PLACEMENTS,
    "RecommendRequest.baseline_item_ids": MAX_SLATE_SIZE,
    "RecommendRequest.candidate_item_ids": fields.MAX_ITEMS,
    "RecommendRequest.context": MAX_CONTEXT_DIMENSION,
    "RecommendRequest.explain_item_ids": MAX_EXPLAINED,
    "RecommendRequest.features": MAX_FEATURES,
    "RecommendRequest.rules": MAX_RULES,
    "RewardEntry.item_values": MAX_SLATE_SIZE,
    "RewardPageRequest.bandits": MAX_PLACEMENTS,
    "RewardRequest.item_values": MAX_SLATE_SIZE,
    "RetireItemsRequest.item_ids": fields.MAX_ITEMS,
    "SlateRules.rules": MAX_RULES,
    "Study.items": fields.MAX_ITEMS,
    "Study.lists": MAX_GIVEN_LISTS,
    "Study.queries": MAX_STUDY_QUERIES,
    "StudyItem.features": MAX_FEATURES,
    "StudyItem.named_features": MAX_FEATURES,
    "StudyList.item_ids": MAX_LIST_SIZE,
    "StudyQuery.features": MAX_FEATURES,
    "SubmitAnswersRequest.answers": MAX_ANSWERS,
    "Tier.item_ids": 1,  # of each of so many tiers: they share the items of one answer
    "TiersAnswer.tiers": MAX_LIST_SIZE,
    "UpsertItemsRequest.items": fields.MAX_ITEMS,
}
"""How many entries each repeated field of a request may have; what has more is refused by its converter."""


def check_size(payload: bytes, descriptor: Descriptor) -> None:
    """Raise `InvalidArgumentError` if a body of JSON holds more values than the fields of its message may."""
    most = max(most_values(descriptor), FEWEST)
    if _has_more(_separators(payload), most) and _has_more(_separators_outside_texts(payload), most):
        raise InvalidArgumentError("request", f"holds more than the {most} values that its fields may have")


@cache
def most_values(descriptor: Descriptor) -> int:
    """Return how many commas, brackets and braces the JSON of a message may have; each value has one of them."""
    if descriptor.file.package == LIBRARYS_OWN:
        return 2
    single = sum(_most_of_field(field) for field in descriptor.fields if field.containing_oneof is None)
    chosen = sum(max(map(_most_of_field, oneof.fields)) for oneof in descriptor.oneofs)
    return min(1 + single + chosen, _MOST)


def _most_of_field(field: FieldDescriptor) -> int:
    inner = 0 if field.message_type is None else most_values(field.message_type)
    if not field.is_repeated:
        return 1 + inner
    name = field.full_name.removeprefix("topk_bandit.v1.")
    return 2 + (1 + inner) * MOST_OF_FIELDS[name]


def _has_more(counts: Iterator[int], most: int) -> bool:
    """Return whether numbers add up to more than another; no more of them are counted than that takes."""
    return any(total > most for total in accumulate(counts))


def _parts(payload: bytes) -> Iterator[bytes]:
    return (payload[begin : begin + _COUNTED_AT_ONCE] for begin in range(0, len(payload), _COUNTED_AT_ONCE))


def _separators(payload: bytes) -> Iterator[int]:
    """Yield how many separators there are in each part of a body."""
    for part in _parts(payload):
        yield part.count(b",") + part.count(b"[") + part.count(b"{")


def _separators_outside_texts(payload: bytes) -> Iterator[int]:
    """Yield how many separators there are outside texts in each part."""
    ends_inside = 0
    for part in _parts(_ESCAPED.sub(b"", payload) if b"\\" in payload else payload):
        letters = np.frombuffer(part, dtype=np.uint8)
        inside = (np.cumsum(letters == ord('"'), dtype=np.uint8) + ends_inside) & 1
        separates = (letters == ord(",")) | (letters == ord("[")) | (letters == ord("{"))
        yield int(np.count_nonzero(separates & (inside == 0)))
        ends_inside = int(inside[-1])
