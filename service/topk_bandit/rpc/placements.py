"""Pages of several slates, as the requests that each of them is made of.

A page is a Recommend for each placement, most important one first. What is shown by then is excluded by a rule of the
next request, which is recorded with it: so its propensities are exact, and its decision can be made again from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import InvalidArgumentError, NotFoundError
from topk_bandit.rpc import fields
from topk_bandit.rpc.converters import context_from_proto

if TYPE_CHECKING:
    from collections.abc import Collection

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.v1 import recommender_service_pb2 as pb

__all__ = ["MAX_PLACEMENTS", "Page", "PageReward", "leave_out", "page_of", "page_reward", "request_id_at"]

MAX_PLACEMENTS = 10
_LONGEST_PAGE_ID = 120
"""With the number of a placement it is a request id."""


class Page(NamedTuple):
    """A page: its id, and for each placement what is asked, or what is wrong with it."""

    page_id: str
    placements: list[pb.RecommendRequest | InvalidArgumentError]


class PageReward(NamedTuple):
    """One reward for the slates of a page: the bandit and the request id of each, or what is wrong with it."""

    slates: list[tuple[BanditName, str] | InvalidArgumentError | NotFoundError]
    value: float
    reward_id: str
    final: bool


def page_of(request: pb.RecommendPageRequest, *, new_id: str) -> Page:
    """Return what a RecommendPage asks.

    Parameters
    ----------
    new_id
        The id of a page that has none.

    Raises
    ------
    InvalidArgumentError
        A field of the page can't be used; what is wrong with one placement is in its place.
    """
    tenant = fields.tenant_name("parent", request.parent)
    fields.size("placements", len(request.placements), most=MAX_PLACEMENTS)
    page_id = _page_id(request.page_id) if request.page_id else new_id
    context_from_proto("", request)
    if request.group_key:
        fields.opaque_id("group_key", request.group_key)
    if request.frequency_key:
        fields.secret_id("frequency_key", request.frequency_key)
    return Page(
        page_id,
        [
            _placement(request_id_at(page_id, index), one, request, tenant)
            for index, one in enumerate(request.placements)
        ],
    )


def page_reward(request: pb.RewardPageRequest) -> PageReward:
    """Return what a RewardPage posts; the errors are those of `page_of`."""
    tenant = fields.tenant_name("parent", request.parent)
    page_id = _page_id(request.page_id)
    fields.size("bandits", len(request.bandits), most=MAX_PLACEMENTS)
    slates: list[tuple[BanditName, str] | InvalidArgumentError | NotFoundError] = []
    for index, bandit in enumerate(request.bandits):
        try:
            slates.append(_rewarded(f"bandits[{index}]", bandit, tenant, request_id_at(page_id, index)))
        except InvalidArgumentError as error:
            slates.append(error)
    return PageReward(
        slates,
        fields.reward_value("value", request.value if request.HasField("value") else None),
        fields.opaque_id("reward_id", request.reward_id) if request.reward_id else "",
        request.final,
    )


def request_id_at(page_id: str, index: int) -> str:
    """Return the request id of a page's placement; the first one is at 0 here, and has the number 1."""
    return f"{page_id}/{index + 1}"


def leave_out(request: pb.RecommendRequest, item_ids: Collection[str]) -> pb.RecommendRequest:
    """Have no item shown that is on the page already, and return the request."""
    if item_ids:
        request.rules.add().exclude.item_ids.extend(item_ids)
    return request


def _page_id(page_id: str) -> str:
    fields.opaque_id("page_id", page_id)
    if len(page_id) > _LONGEST_PAGE_ID:
        raise InvalidArgumentError("page_id", f"has {len(page_id)} characters; at most {_LONGEST_PAGE_ID} are allowed")
    return page_id


def _bandit_of(path: str, bandit: str, tenant: str) -> BanditName:
    name = fields.bandit_name(path, bandit)
    if name.tenant != tenant:
        raise InvalidArgumentError(path, f"must be a bandit of tenants/{tenant}")
    return name


def _rewarded(path: str, bandit: str, tenant: str, request_id: str) -> tuple[BanditName, str] | NotFoundError:
    """Return which slate a placement showed; an empty bandit showed none of the service's."""
    return (_bandit_of(path, bandit, tenant), request_id) if bandit else NotFoundError(f"a slate of {path}")


def _placement(
    request_id: str, placement: pb.RecommendRequest, page: pb.RecommendPageRequest, tenant: str
) -> pb.RecommendRequest | InvalidArgumentError:
    """Return a placement's request with what it has from its page."""
    try:
        _bandit_of("bandit", placement.bandit, tenant)
    except InvalidArgumentError as error:
        return error
    if placement.request_id:
        return InvalidArgumentError("request_id", "can't be used: it is made from the page_id")
    placement.request_id = request_id
    if not (placement.context or placement.features):
        placement.context.extend(page.context)
        for name, value in page.features.items():
            placement.features[name].CopyFrom(value)
        placement.known_features_only = placement.known_features_only or bool(page.features)
    if not placement.group_key:
        placement.group_key = page.group_key
    if not placement.frequency_key:
        placement.frequency_key = page.frequency_key
    return placement
