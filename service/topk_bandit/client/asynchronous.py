"""The asynchronous client."""

from __future__ import annotations

import asyncio
import random as random_module
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from topk_bandit.client.arguments import several, texts
from topk_bandit.client.asynchronous_operators import AsyncOperators
from topk_bandit.client.asynchronous_studies import AsyncStudies
from topk_bandit.client.base import CHANNEL_OPTIONS, channel_credentials
from topk_bandit.client.breakers import BreakerPolicy
from topk_bandit.client.connections import AsyncConnections
from topk_bandit.client.errors import CLOSED_CHANNEL, client_closed, error_of_call
from topk_bandit.client.fallbacks import FALLBACK_SECONDS, check_fallbacks
from topk_bandit.client.forks import follow_forks
from topk_bandit.client.hedging import checked_delay
from topk_bandit.client.http_calls import is_http
from topk_bandit.client.imports import ImportReport, add_reports
from topk_bandit.client.loops import inside_loop
from topk_bandit.client.operations import merge_outcomes
from topk_bandit.client.rules import allowed_of
from topk_bandit.client.values import Item, Kernel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from topk_bandit.client.asynchronous_http import AsyncHttpChannel
    from topk_bandit.client.bandit_settings import BanditChanges, BanditSettings
    from topk_bandit.client.errors import ClientError
    from topk_bandit.client.imports import ImportProgress, PastObservation
    from topk_bandit.client.operations import Operation, Page
    from topk_bandit.client.retries import RetryPolicy
    from topk_bandit.client.rules import Rule
    from topk_bandit.client.values import (
        ActivationReceipt,
        Bandit,
        BanditStats,
        BatchOutcome,
        PagePlacement,
        Recommendation,
        RewardReceipt,
        SlatePage,
        SlateRequest,
        Source,
        Tls,
    )

__all__ = ["AsyncClient"]

T = TypeVar("T")


class AsyncClient(AsyncStudies, AsyncOperators):
    """A storefront's connection to the service, for one tenant.

    Make it inside the event loop that it is used on; cancelling a call's task cancels the call.
    Over gRPC it has a connection to each worker that owns a bandit it calls for, as far as it knows.
    Every call has a deadline, within which it is tried again when that does no harm and may help; each raises
    `topk_bandit.client.ClientError` or one of its kinds. Close it after use, or use it in an ``async with`` statement.

    Parameters
    ----------
    target
        Where the service is, as gRPC names it: ``host:port``, ``dns:///host:port`` or ``unix:path``. All
        addresses of a name are used in turn. ``http://host:port`` and ``https://host:port`` name its HTTP listener,
        which is called over HTTP then.
    key
        ``id.secret``, for a service that asks for keys. It is sent with each call, so use it with `tls`.
    timeout
        Seconds that a call may take, all tries and pauses together, if it does not say otherwise.
    tls
        How to talk TLS; None talks plain text.
    fallback_timeout
        The same for a slate that there is a fallback for.
    breaker
        When such slates are not asked for, because the service does not answer; None asks always.
    hedge_after
        Seconds after which a Recommend that is not answered is sent once more, over a second connection, where another
        worker may answer. None sends it once, as each costs the service a decision.
    raise_late
        Whether a reward that came after its deadline is an error, `FailedPrecondition` (REWARD_LATE). Else the first of
        each bandit is logged as a warning, and all are counted in `late_rewards`.
    clock, sleep, random, new_request_id
        Return seconds, monotonic; wait so many seconds; draw from [0, 1); make an id that is different each time.
    """

    def __init__(
        self,
        target: str,
        *,
        tenant: str,
        key: str | None = None,
        timeout: float = 2.0,
        tls: Tls | None = None,
        retry: RetryPolicy | None = None,
        fallback_timeout: float = FALLBACK_SECONDS,
        breaker: BreakerPolicy | None = BreakerPolicy(),
        hedge_after: float | None = None,
        raise_late: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = random_module.random,
        new_request_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        super().__init__(
            tenant,
            key=key,
            timeout=timeout,
            retry=retry,
            fallback_timeout=fallback_timeout,
            breaker=breaker,
            raise_late=raise_late,
            clock=clock,
            random=random,
            new_request_id=new_request_id,
        )
        self._sleep = sleep
        self._target = target
        self._tls = tls
        self._hedge_after = checked_delay(hedge_after)
        self._connect()
        follow_forks(self)

    def _connect(self) -> None:
        opened = partial(_open, self._target, self._tls)
        self._connections = AsyncConnections(opened, hedge_after=self._hedge_after, clock=self._clock)

    async def close(self) -> None:
        """Let go of all connections; calls under way are cancelled."""
        self._is_closed = True
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run_or_fall_back(
        self,
        asked: Callable[[], Operation[T]],
        timeout: float | None,
        *,
        came: Callable[[T], T],
        instead: Callable[..., T],
    ) -> T:
        """Return what came in time, or what is shown instead of it: a page that has a fallback never breaks."""
        if not self._fallbacks.asks():
            return instead(error=None)
        try:
            answer = await self._run(asked(), self._fallback_timeout if timeout is None else timeout)
        except Exception as error:  # noqa: BLE001, whatever goes wrong
            return instead(error=error)
        return came(answer)

    async def _run(self, operation: Operation[T], timeout: float | None) -> T:
        attempts, call = self._attempts(operation, timeout), self._connections.call
        while True:
            try:
                return operation.result(await call(operation, timeout=attempts.remaining(), metadata=self._metadata))
            except grpc.RpcError as failure:
                error = error_of_call(failure, target=self._target)
                pause = attempts.pause_after(error)
                if pause is None:
                    raise error from None
            except CLOSED_CHANNEL:
                if self._is_closed:
                    raise client_closed() from None
                raise
            await self._sleep(pause)

    async def _pages(self, page_after: Callable[[str], Operation[Page[T]]], timeout: float | None) -> AsyncIterator[T]:
        token, more = "", True
        while more:
            page = await self._run(page_after(token), timeout)
            for entry in page.entries:
                yield entry
            token, more = page.next_token, bool(page.next_token)

    @property
    def late_rewards(self) -> Mapping[str, int]:
        """How many of the rewards posted here came after their deadline and were not learned, by bandit."""
        return dict(self._late.counts)

    @property
    def slates(self) -> Mapping[Source, int]:
        """How many slates were given here, by where they come from."""
        return self._fallbacks.sources

    @property
    def fallbacks(self) -> Mapping[str, int]:
        """How many slates were the shop's own ranking, by why.

        An error's reason, or its code: ``UNAVAILABLE``, ``DEADLINE_EXCEEDED``, ``INVALID_ARGUMENT``; ``BREAKER_OPEN``,
        when the service was not asked.
        """
        return self._fallbacks.reasons

    async def recommend(
        self,
        bandit: str,
        context: Iterable[float] = (),
        candidates: Iterable[str] | None = None,
        request_id: str | None = None,
        *,
        features: object = None,
        fallback: Sequence[str] | None = None,
        fallback_size: int | None = None,
        min_model_version: int = 0,
        strict_candidates: bool = False,
        baseline: Sequence[str] | None = None,
        group_key: str | None = None,
        rules: Sequence[Rule | str] | None = None,
        explain: Iterable[str] | None = None,
        frequency_key: str | None = None,
        timeout: float | None = None,
    ) -> Recommendation:
        """Return the slate to show.

        With a `fallback` it raises nothing: whatever goes wrong, it returns the shop's own slate, within `timeout`, or
        else the client's `fallback_timeout`. What goes wrong for the first time is logged, as an error where the call
        itself has to be changed, and `fallbacks` counts it.

        Parameters
        ----------
        context
            Numbers that describe the request, as many as the bandit takes; none at all for a bandit without a context.
        candidates
            Ids of the items that may be shown now; None for every available item. `FailedPrecondition` if too few of
            them can be, and the bandit has no baseline slate.
        request_id
            The same id, with the same context, features and candidates, gives the same recommendation again; None makes
            a new id. `FailedPrecondition` if an item of that one was taken out since.
        features
            The features by name, for a bandit with a context schema: a mapping, such as a dict or a TypedDict,
            or a dataclass. Those that are None, or left out, are missing. See `docs/contexts.md`.
        fallback
            Item ids in the shop's own order, to show when the service gives no slate in time.
        fallback_size
            How many of these to show; None for as many as the bandit's last slate had, and for all before the first.
        min_model_version
            The slate is chosen by a model that has learned from the log up to there at least, such as the
            `log_position` of one's own last reward; 0 takes the model as it is. `FailedPrecondition` if the log ends
            before it.
        strict_candidates
            Whether a candidate that is unknown or retired is `NotFound`, instead of passed over and counted.
        baseline
            The shop's own slate, best first, for the control group and for a bandit in shadow or off; None for the
            bandit's baseline slate.
        group_key
            What is drawn to a group, such as a visitor's pseudonym: equal keys stay in one group. None draws the
            request.
        rules
            What the slate keeps beside the bandit's own rules; a text stands for a `Filter`. `FailedPrecondition` if no
            slate keeps them. See `docs/rules.md`. A fallback keeps `Exclude` alone.
        explain
            Items of which `Recommendation.absent_items` says why they are not there.
        frequency_key
            Whom `Frequency` rules count for, such as an id of a session. A digest of it is kept as long as they count.
        """
        asked = partial(
            self._operations.recommend,
            bandit,
            context,
            candidates=candidates,
            request_id=request_id,
            features=features,
            min_model_version=min_model_version,
            strict_candidates=strict_candidates,
            baseline=baseline,
            group_key=group_key,
            rules=rules,
            explain=explain,
            frequency_key=frequency_key,
        )
        came = partial(self._fallbacks.came, bandit)
        if fallback is None:
            return came(await self._run(asked(), timeout))
        ranking = allowed_of(texts("fallback", fallback), rules)
        instead = partial(self._fallbacks.instead, bandit, ranking, size=fallback_size)
        return await self._run_or_fall_back(asked, timeout, came=came, instead=instead)

    async def recommend_batch(
        self,
        bandit: str,
        requests: Iterable[SlateRequest],
        *,
        min_model_version: int = 0,
        strict_candidates: bool = False,
        timeout: float = 60.0,
    ) -> list[Recommendation | ClientError]:
        """Return a slate for each of many requests, such as one for each reader of a mail, in their order.

        A request that is refused has its error in the place of its slate, and stops no other. They go in calls of up to
        100, each with its own `timeout`. When a call fails, its error is raised. The same requests again, with
        request ids of their own, get the same slates.

        Parameters
        ----------
        requests
            What is asked for each slate, as in `recommend`. A request without an id gets a new one.
        min_model_version, strict_candidates
            As for `recommend`, the same for all.
        """
        parts = self._operations.recommend_batch(
            bandit, requests, min_model_version=min_model_version, strict_candidates=strict_candidates
        )
        slates: list[Recommendation | ClientError] = []
        for part in parts:
            found = await self._run(part, timeout)
            slates += found
        return slates

    async def recommend_page(
        self,
        placements: Iterable[PagePlacement],
        context: Iterable[float] = (),
        *,
        features: object = None,
        group_key: str | None = None,
        frequency_key: str | None = None,
        page_id: str | None = None,
        timeout: float | None = None,
    ) -> SlatePage:
        """Return the slates of a page, none with an item that another one shows.

        A placement that is refused has its fallback in the place of its slate, or else its error, and stops no other.
        Each slate is rewarded by itself, or all of them by `reward_page`. Where any placement has a fallback nothing is
        raised: whatever goes wrong, the page is there within `timeout`, or else the client's `fallback_timeout`.

        Parameters
        ----------
        placements
            What is asked for each slate, the most important one first: what it shows is in none after it. Ten at most.
        context, features, group_key, frequency_key
            As for `recommend`, for each placement that has none of its own. Each takes the features that its bandit
            knows.
        page_id
            The same id, with the same placements, gives the same slates again; None makes a new id.
        """
        places = check_fallbacks(several("placements", placements))
        asked = partial(
            self._operations.recommend_page,
            places,
            context=context,
            features=features,
            group_key=group_key,
            frequency_key=frequency_key,
            page_id=page_id,
        )
        came = partial(self._fallbacks.page_came, places)
        if all(getattr(one, "fallback", None) is None for one in places):
            return came(await self._run(asked(), timeout))
        instead = partial(self._fallbacks.page_instead, places)
        return await self._run_or_fall_back(asked, timeout, came=came, instead=instead)

    async def reward_page(
        self,
        page_id: str,
        bandits: Iterable[str],
        value: float,
        *,
        reward_id: str = "",
        final: bool = False,
        timeout: float | None = None,
    ) -> Sequence[RewardReceipt | ClientError]:
        """Post one reward for all slates of a page; return what became of each, or its error.

        Parameters
        ----------
        bandits
            Those of the page's placements, in their order, as `SlatePage.bandits` has them: an empty one showed a slate
            of its own, which takes no reward, and `NotFound` is in its place.
        value, reward_id, final
            As for `reward`, the same for all.
        """
        names = several("bandits", bandits)
        posted = self._operations.reward_page(page_id, names, value, reward_id=reward_id, final=final)
        results = await self._run(posted, timeout)
        return [self._late.note_one(bandit, one) for bandit, one in zip(names, results, strict=True)]

    async def activate(
        self,
        bandit: str,
        recommendation_id: str,
        *,
        shown: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> ActivationReceipt:
        """Say that a slate was shown, or that `shown`, as many items, were instead of it.

        It is needed where the bandit has `requires_activation`; a reward says it too.
        """
        return await self._run(self._operations.activate(bandit, recommendation_id, shown), timeout)

    async def reward(
        self,
        bandit: str,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str = "",
        final: bool = False,
        item_values: Mapping[str, float] | None = None,
        timeout: float | None = None,
    ) -> RewardReceipt:
        """Post the number that a slate earned; return what became of it, and where it stands in the log.

        Parameters
        ----------
        reward_id
            Tells several rewards of a slate apart, where the bandit's `reward_aggregation` is not FIRST.
        final
            Whether no more will come, so that what they come to is learned now.
        item_values
            What single items of the slate did, by their ids: 1.0 for a click, the minutes that were watched. They teach
            which items are liked, and `value` alone is maximised. None where that is not known.
        """
        posted = self._operations.reward(
            bandit, recommendation_id, value, reward_id=reward_id, final=final, item_values=item_values
        )
        receipt = await self._run(posted, timeout)
        self._late.note(bandit, [receipt])
        return receipt

    async def rewards(
        self,
        bandit: str,
        values: Mapping[str, float],
        *,
        reward_id: str = "",
        final: bool = False,
        timeout: float | None = None,
    ) -> BatchOutcome:
        """Post many rewards by recommendation id; return what became of each.

        `reward_id` and `final` are as for `reward`, the same for all: "click", or "return". The rewards go in calls of
        up to 1,000, each with its own `timeout`. When a call fails, its error is raised, and
        posting everything again does no harm.
        """
        parts = self._operations.rewards(bandit, values, reward_id=reward_id, final=final)
        outcome = merge_outcomes([await self._run(part, timeout) for part in parts])
        self._late.note(bandit, outcome.receipts.values())
        return outcome

    async def void_reward(
        self, bandit: str, recommendation_id: str, *, reward_id: str = "", timeout: float | None = None
    ) -> RewardReceipt:
        """Take a reward back, or without a `reward_id` all of a slate, those too that have not come.

        It is exact until the model is refit, and `FailedPrecondition` (REWARD_FOLDED) after. With `provisional_after`
        it is taken until the bandit's `reward_wait` ends, and so is a reward that is not learned yet.
        """
        operation = self._operations.void_reward(bandit, recommendation_id, reward_id=reward_id)
        return await self._run(operation, timeout)

    async def amend_reward(
        self,
        bandit: str,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str = "",
        item_values: Mapping[str, float] | None = None,
        timeout: float | None = None,
    ) -> RewardReceipt:
        """Replace a reward by another value, as long as `void_reward` could take it back.

        Its `item_values` replace all that it said of items; with None that stays.
        """
        operation = self._operations.amend_reward(
            bandit, recommendation_id, value, reward_id=reward_id, item_values=item_values
        )
        return await self._run(operation, timeout)

    async def create_bandit(
        self,
        bandit: str,
        *,
        slate_size: int,
        item_capacity: int,
        context_dimension: int = 0,
        kernel: Kernel = Kernel.ADAPTIVE,
        timeout: float | None = None,
        **settings: Unpack[BanditSettings],
    ) -> Bandit:
        """Create a bandit, or return the equal one that is there; see `BanditSettings` for what else can be set."""
        operation = self._operations.create_bandit(
            bandit,
            slate_size=slate_size,
            item_capacity=item_capacity,
            context_dimension=context_dimension,
            kernel=kernel,
            settings=settings,
        )
        return await self._run(operation, timeout)

    async def get_bandit(self, bandit: str, *, timeout: float | None = None) -> Bandit:
        """Return a bandit's settings."""
        return await self._run(self._operations.get_bandit(bandit), timeout)

    def list_bandits(self, *, timeout: float | None = None) -> AsyncIterator[Bandit]:
        """Iterate over the tenant's bandits by name; `timeout` is for each page."""
        return self._pages(self._operations.list_bandits, timeout)

    async def update_bandit(
        self, bandit: str, *, timeout: float | None = None, **changes: Unpack[BanditChanges]
    ) -> Bandit:
        """Change the settings that are given; None takes one back to its default. What was learned is kept."""
        return await self._run(self._operations.update_bandit(bandit, changes), timeout)

    async def reset_bandit(self, bandit: str, *, request_id: str | None = None, timeout: float | None = None) -> Bandit:
        """Have a bandit forget all that it learned from rewards; its items, settings and open slates stay.

        A reward that comes later is learned, also of a slate that was shown before. Repeated with the same `request_id`
        it happens once; None makes a new one.
        """
        return await self._run(self._operations.reset_bandit(bandit, request_id), timeout)

    async def delete_bandit(self, bandit: str, *, timeout: float | None = None) -> None:
        """Remove a bandit and all that it learned, for good."""
        await self._run(self._operations.delete_bandit(bandit), timeout)

    async def upsert_items(
        self,
        bandit: str,
        items: Iterable[str | Item] | Mapping[str, Any],
        *,
        mask: Iterable[str] | None = None,
        allow_missing: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Add items, or put others in the place of those of their ids; return how many there are, without retired ones.

        Parameters
        ----------
        items
            Ids, items, or features by id, as `Item.features` has them.
        mask
            The parts to change of items that are there: ``"available"``, ``"features"``, or single ones such as
            ``"features.price"``. All others stay as they are; a feature that is named and not given is missing from
            then on. None replaces whole items, whose features are missing where they are not given.
        allow_missing
            Whether a change with a mask makes items that are not there, whole as they are given; otherwise one is
            `NotFound`.
        """
        operation = self._operations.upsert_items(bandit, items, mask=mask, allow_missing=allow_missing)
        return await self._run(operation, timeout)

    async def set_available(
        self, bandit: str, item_ids: Iterable[str], *, available: bool, timeout: float | None = None
    ) -> int:
        """Say whether items may be shown, and leave their features as they are; return how many the bandit has."""
        items = [Item(item_id, available=available) for item_id in texts("item_ids", item_ids)]
        return await self.upsert_items(bandit, items, mask=["available"], timeout=timeout)

    async def retire_items(self, bandit: str, item_ids: Iterable[str], *, timeout: float | None = None) -> int:
        """Take items out of all slates for good; return how many the bandit has left."""
        return await self._run(self._operations.retire_items(bandit, item_ids), timeout)

    def items(self, bandit: str, *, timeout: float | None = None) -> AsyncIterator[Item]:
        """Iterate over a bandit's items by id, without retired ones; `timeout` is for each page."""
        return self._pages(lambda token: self._operations.list_items(bandit, token), timeout)

    async def import_observations(
        self,
        bandit: str,
        rows: Iterable[PastObservation],
        *,
        import_id: str,
        first_row: int = 0,
        next_row: int | None = None,
        skip_bad_rows: bool = False,
        timeout: float = 60.0,
    ) -> ImportReport:
        """Teach a bandit from slates that were shown elsewhere; return what became of the rows.

        The rows go in calls of up to 1,000, each with its own `timeout`. When a call fails, its error is raised, and
        importing the same rows again under the same id takes what is left: rows that were taken before change nothing,
        and others in their place are `AlreadyExists` (IMPORT_REUSED). See `docs/history.md`.

        Parameters
        ----------
        import_id
            Tells this import from others: what was imported under another id is learned once more.
        first_row, next_row
            Where the rows stand in the import: the number of the first one, and of the one after them if some were
            left out; None counts them.
        skip_bad_rows
            Whether rows that can't be taken are left out and reported, instead of refusing those of their call as
            `InvalidArgument`.
        """
        parts = self._operations.import_rows(
            bandit, rows, import_id=import_id, first_row=first_row, next_row=next_row, skip_bad_rows=skip_bad_rows
        )
        report = ImportReport(first_row, 0, 0, (), 0)
        for part in parts:
            report = add_reports(report, await self._run(part, timeout))
        return report

    async def get_import(self, bandit: str, import_id: str, *, timeout: float | None = None) -> ImportProgress:
        """Return how far an import is."""
        return await self._run(self._operations.get_import(bandit, import_id), timeout)

    async def stats(self, bandit: str, *, timeout: float | None = None) -> BanditStats:
        """Return where a bandit stands."""
        return await self._run(self._operations.stats(bandit), timeout)


def _open(target: str, tls: Tls | None) -> grpc.aio.Channel | AsyncHttpChannel:
    if is_http(target):
        from topk_bandit.client.asynchronous_http import AsyncHttpChannel  # noqa: PLC0415 - only where it is called

        return AsyncHttpChannel(target, tls)
    if tls is None:
        return inside_loop(grpc.aio.insecure_channel)(target, options=CHANNEL_OPTIONS)
    return inside_loop(grpc.aio.secure_channel)(target, channel_credentials(tls), options=CHANNEL_OPTIONS)
