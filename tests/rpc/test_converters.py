from __future__ import annotations

import pytest

from topk_bandit.rpc import converters
from topk_bandit.v1 import bandit_service_pb2 as pb


@pytest.mark.parametrize(
    ("asked", "bandits", "items"),
    [(0, 100, 1000), (1, 1, 1), (1000, 1000, 1000), (1001, 1000, 1001), (2**31 - 1, 1000, 10_000)],
)
def test_pages_have_a_default_and_a_largest_size(asked: int, bandits: int, items: int) -> None:
    _, page = converters.bandit_page(pb.ListBanditsRequest(parent="tenants/acme", page_size=asked))
    assert page.size == bandits
    _, page = converters.item_page(pb.ListItemsRequest(bandit="tenants/acme/bandits/home", page_size=asked))
    assert page.size == items
