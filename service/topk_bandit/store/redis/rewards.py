"""Take in the rewards of a bandit in Redis, one or many at once.

Many go in parts, so that no part holds up the server or the event loop for long. A part is sent as a whole, and what is
written of it is waited for once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topk_bandit.domain.bandits import RewardOutcome, RewardReceipt
from topk_bandit.domain.errors import NotDurableError, TopkBanditError, UnavailableError
from topk_bandit.store.log import MOST_REWARDS
from topk_bandit.store.redis import scripts
from topk_bandit.store.redis.replies import read_appended
from topk_bandit.store.refusals import finite_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.bandits import BanditName, Reward
    from topk_bandit.domain.durability import Durability
    from topk_bandit.store.log import AppendedEvents, BanditRecord
    from topk_bandit.store.redis.aggregate import Aggregates
    from topk_bandit.store.redis.keys import KeySpace

__all__ = ["REWARDS_AT_ONCE", "RewardWriter"]

REWARDS_AT_ONCE = 100
"""How many are sent together."""


class RewardWriter:
    """Where rewards are written.

    Parameters
    ----------
    bandits
        Where to send scripts.
    writer
        Who writes, for announcements.
    """

    def __init__(self, bandits: Aggregates[BanditName, BanditRecord], keys: KeySpace, *, writer: str) -> None:
        self._bandits = bandits
        self._keys = keys
        self._writer = writer

    async def record(self, name: BanditName, reward: Reward, *, told: AppendedEvents | None) -> RewardReceipt:
        """See `Store.record_reward`."""
        reply, durability = await self._bandits.tell(
            scripts.RECORD_REWARD, name, self._list_keys(name), self._list_arguments(name, reward)
        )
        _tell(reply, told)
        return _receipt(reply, durability)

    async def record_all(
        self, name: BanditName, rewards: Sequence[Reward], *, told: AppendedEvents | None
    ) -> list[RewardReceipt | Exception]:
        """See `Store.record_rewards`."""
        sent, outcomes = [self._list_arguments(name, reward) for reward in rewards], list[RewardReceipt | Exception]()
        missed: UnavailableError | None = None
        while len(outcomes) < len(sent):
            part = sent[len(outcomes) : len(outcomes) + REWARDS_AT_ONCE]
            try:
                outcomes += await self._record_part(name, part, missed, told=told)
            except TopkBanditError as error:
                outcomes += [error] * len(part)
                if isinstance(error, UnavailableError):
                    return [*outcomes, *[_tell_untried(error)] * (len(sent) - len(outcomes))]
            missed = missed or next((one for one in outcomes if isinstance(one, NotDurableError)), None)
        return outcomes

    async def _record_part(
        self,
        name: BanditName,
        part: Sequence[Sequence[str | int]],
        missed: UnavailableError | None,
        *,
        told: AppendedEvents | None,
    ) -> list[RewardReceipt | Exception]:
        """Write a part; where `missed` says that one before was waited for in vain, do not wait for this one too."""
        script, keys = scripts.RECORD_REWARD, self._list_keys(name)
        if missed is None:
            replies, durability = await self._bandits.tell_all(script, name, keys, part)
            for reply in replies:
                _tell(reply, told)
            return [_outcome(reply, durability) for reply in replies]
        unconfirmed = NotDurableError(
            "written, but not waited for, as others before it were not durable in time; the same call again finds out",
            retry_after=missed.retry_after,
        )
        replies = await self._bandits.tell_all_unconfirmed(script, name, keys, part)
        for reply in replies:
            _tell(reply, told)
        return [_outcome(reply, unconfirmed) for reply in replies]

    def _list_keys(self, name: BanditName) -> Sequence[str]:
        return self._keys.bandit(name).of_slates

    def _list_arguments(self, name: BanditName, reward: Reward) -> Sequence[str | int]:
        value = finite_text("value", reward.value)
        announcing = self._keys.changes, self._keys.announcement(name, writer=self._writer)
        return (*announcing, reward.recommendation_id, value, reward.reward_id, int(reward.final), MOST_REWARDS)


def _outcome(reply: Any, durability: Durability | NotDurableError) -> RewardReceipt | Exception:  # noqa: ANN401 - as replies are
    if isinstance(reply, Exception):
        return reply
    return durability if isinstance(durability, NotDurableError) else _receipt(reply, durability)


def _receipt(reply: Sequence[Any], durability: Durability) -> RewardReceipt:
    status, position = reply[:2]
    return RewardReceipt(RewardOutcome(status.decode()), int(position), durability)


def _tell(reply: Any, told: AppendedEvents | None) -> None:  # noqa: ANN401 - as replies are
    """Put what a script has appended where it is wanted."""
    if told is not None:
        told.append(None if isinstance(reply, Exception) else read_appended(reply[2:]))


def _tell_untried(found: UnavailableError) -> UnavailableError:
    problem = "not tried, since the store was away for rewards before it"
    return UnavailableError(problem, retry_after=found.retry_after, nothing_sent=True)
