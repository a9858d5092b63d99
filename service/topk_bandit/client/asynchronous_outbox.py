"""The asynchronous client's outbox."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from topk_bandit.client.arguments import filled, message, number
from topk_bandit.client.arguments import item_values as values_of_items
from topk_bandit.client.errors import invalid_argument
from topk_bandit.client.loops import on_this_loop
from topk_bandit.client.outbox_file import OutboxFile
from topk_bandit.client.outbox_sender import OutboxSender
from topk_bandit.domain.bandits import MAX_SLATE_SIZE
from topk_bandit.domain.ids import ID, ID_RULE
from topk_bandit.domain.paths import entry_of
from topk_bandit.v1 import recommender_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from topk_bandit.client.asynchronous import AsyncClient
    from topk_bandit.client.values import OutboxStatus, Refusal

__all__ = ["AsyncOutbox"]

# As many characters as the service takes.
_LONGEST_ID = 128


class AsyncOutbox:
    """Rewards and activations that can't be lost: on disk before a call returns, delivered when the service takes them.

    Make it inside the event loop that it is used on; the file is written and emptied on other threads.
    What is written stays until the service has answered for it, across restarts of both; each has its effect once,
    however often it is sent. What is written about one slate is delivered in the order it was written, an activation
    before the slate's reward. Several processes of a machine may share a file, on a local disk; each delivers what
    it finds there. Close it before its client, or use it in an ``async with`` statement: what is left then is delivered
    by whoever opens the file next.

    Parameters
    ----------
    path
        A SQLite file, which is made if there is none; two others with longer names come and go beside it.
    client
        Delivers; its tenant is the file's.
    max_waiting
        How many rewards and activations may wait. With more, `reward` and `activate` raise `ResourceExhausted`
        (OUTBOX_FULL).
    timeout
        Seconds that a call of the delivery may take; None takes the client's. Twice as long others leave alone what a
        process was delivering when it was killed.
    on_refused
        Called with a `Refusal` for each that the service will never take (LATE, NOT_FOUND, ALREADY_EXISTS,
        INVALID_ARGUMENT, FAILED_PRECONDITION), on another thread, perhaps twice for one; without it the first of each
        kind is logged. All are counted in `status`.
    now
        Seconds since 1970.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        client: AsyncClient,
        *,
        max_waiting: int = 100_000,
        timeout: float | None = None,
        on_refused: Callable[[Refusal], object] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        seconds = client._timeout if timeout is None else timeout
        self._new_reward_id = client._operations.new_request_id
        tenant = client._operations.tenant
        self._sender = OutboxSender(
            OutboxFile(path, tenant=tenant, max_waiting=max_waiting, lease=2.0 * seconds, now=now),
            operations=client._operations,
            send=on_this_loop(client._run),
            timeout=seconds,
            late=client._late,
            retry=client._retry,
            random=client._random,
            goes_over_forks=client._goes_over_forks,
            on_refused=on_refused,
        )

    async def reward(
        self,
        bandit: str,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str | None = None,
        final: bool = False,
        item_values: Mapping[str, float] | None = None,
    ) -> bool:
        """Write down what a slate number; it will be delivered, also if this process is killed now.

        Return whether there was something to write: a slate without an id, degraded or the shop's own, takes no reward.

        Parameters
        ----------
        reward_id
            The same id is the same reward, which counts once; None makes an id for each call.
        final
            Whether no more will come; those of a slate are delivered in the order they were written.
        item_values
            What single items of the slate did, by their ids, as for `Client.reward`.

        Raises
        ------
        InvalidArgument
            The bandit is no id, a value is no finite number, there are more items than a slate has, or an id is too
            long.
        ResourceExhausted
            OUTBOX_FULL: too many are waiting.
        Unavailable
            OUTBOX_FAILED: the file can't be written, because its disk is full for example.
        """
        if not recommendation_id:
            return False
        posted = message(
            pb.RewardRequest,
            bandit=bandit,
            recommendation_id=recommendation_id,
            value=_finite("value", value),
            reward_id=self._new_reward_id() if reward_id is None else reward_id,
            final=final,
            item_values=_checked_values(item_values),
        )
        _check_ids(bandit=posted.bandit, recommendation_id=posted.recommendation_id, reward_id=posted.reward_id)
        await asyncio.to_thread(
            self._sender.add_reward,
            posted.bandit,
            posted.recommendation_id,
            posted.value,
            reward_id=posted.reward_id,
            final=posted.final,
            item_values=dict(posted.item_values),
        )
        return True

    async def activate(self, bandit: str, recommendation_id: str, *, shown: Iterable[str] | None = None) -> bool:
        """Write down that a slate was shown, or that `shown`, as many items, were instead of it; it will be delivered.

        Return whether there was something to write, as `reward` does, and write it before that slate's rewards: each of
        these says that the slate itself was shown. If the service refuses it, they are delivered all the same.

        Raises
        ------
        InvalidArgument
            The bandit is no id, there are more items than a slate has, or an id is too long.
        ResourceExhausted
            OUTBOX_FULL: too many are waiting.
        Unavailable
            OUTBOX_FAILED: the file can't be written.
        """
        if not recommendation_id:
            return False
        posted = message(
            pb.ActivateRequest,
            bandit=bandit,
            recommendation_id=recommendation_id,
            shown_item_ids=_checked_items(shown),
        )
        _check_ids(bandit=posted.bandit, recommendation_id=posted.recommendation_id)
        items = tuple(posted.shown_item_ids)
        await asyncio.to_thread(self._sender.add_activation, posted.bandit, posted.recommendation_id, items)
        return True

    async def status(self) -> OutboxStatus:
        """Return how many rewards and activations wait, since when, and what became of the others."""
        return await asyncio.to_thread(self._sender.status)

    async def flush(self, timeout: float) -> int:
        """Wait until nothing is left, for so many seconds at most; return how many are left."""
        return await asyncio.to_thread(self._sender.flush, timeout)

    async def close(self) -> None:
        """Let go of the file, after the call under way; what is left stays on disk."""
        await asyncio.to_thread(self._sender.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _check_ids(**ids: str) -> None:
    for field, text in ids.items():
        if field == "bandit" and not ID.fullmatch(text):
            raise invalid_argument(field, f"must be {ID_RULE}, not {text!r}" if text else "is required")
        if len(text) > _LONGEST_ID:
            raise invalid_argument(field, f"must have at most {_LONGEST_ID} characters")


def _checked_items(shown: Iterable[str] | None) -> tuple[str, ...]:
    items = tuple(filled("shown_item_ids", shown, absent="the recommended slate"))
    if len(items) > MAX_SLATE_SIZE:
        raise invalid_argument("shown_item_ids", f"must be at most {MAX_SLATE_SIZE} items")
    _check_ids(**{f"shown_item_ids[{index}]": item for index, item in enumerate(items)})
    return items


def _checked_values(values: Mapping[str, float] | None) -> dict[str, float]:
    named = values_of_items("item_values", values)
    if len(named) > MAX_SLATE_SIZE:
        raise invalid_argument("item_values", f"must be of at most {MAX_SLATE_SIZE} items")
    _check_ids(**{entry_of("item_values", item_id[:_LONGEST_ID]): item_id for item_id in named})
    return {item_id: _finite(entry_of("item_values", item_id), value) for item_id, value in named.items()}


def _finite(field: str, value: float) -> float:
    found = number(field, value)
    if not math.isfinite(found):
        raise invalid_argument(field, f"must be a finite number, not {value!r}")
    return found
