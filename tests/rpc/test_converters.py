from __future__ import annotations

import pytest

from topk_bandit.client import operations
from topk_bandit.domain.durability import FSYNC, IN_MEMORY, Durability
from topk_bandit.domain.slates import RewardOutcome, RewardReceipt
from topk_bandit.rpc import converters
from topk_bandit.v1 import bandit_service_pb2 as pb
from topk_bandit.v1 import recommender_service_pb2 as recommender_pb


@pytest.mark.parametrize(
    ("asked", "bandits", "items"),
    [(0, 100, 1000), (1, 1, 1), (1000, 1000, 1000), (1001, 1000, 1001), (2**31 - 1, 1000, 10_000)],
)
def test_pages_have_a_default_and_a_largest_size(asked: int, bandits: int, items: int) -> None:
    _, page = converters.bandit_page(pb.ListBanditsRequest(parent="tenants/acme", page_size=asked))
    assert page.size == bandits
    _, page = converters.item_page(pb.ListItemsRequest(bandit="tenants/acme/bandits/home", page_size=asked))
    assert page.size == items


@pytest.mark.parametrize("durability", [IN_MEMORY, FSYNC, Durability(synced=True, replicas=3)], ids=str)
def test_what_was_achieved_crosses_the_wire(durability: Durability) -> None:
    receipt = RewardReceipt(RewardOutcome.ACCEPTED, 7, durability)
    message = converters.receipt_to_proto(receipt, recommender_pb.RewardResult)
    assert recommender_pb.Durability.Name(message.durability) == f"DURABILITY_{durability.word.upper()}"
    assert operations._receipt(message).durability == durability
