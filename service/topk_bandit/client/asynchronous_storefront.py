"""The asynchronous client in a web application: opened and closed with it, and a line in each of its views."""

from __future__ import annotations

import functools
import inspect
from threading import Lock
from typing import TYPE_CHECKING

from topk_bandit.client.asynchronous_outbox import AsyncOutbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from os import PathLike
    from types import TracebackType
    from typing import Any, TypeVar

    from topk_bandit.client.asynchronous import AsyncClient
    from topk_bandit.client.rules import Rule
    from topk_bandit.client.values import Recommendation

    R = TypeVar("R")

__all__ = ["AsyncPlacement", "AsyncStorefront"]

_SLATE = "slate"


class AsyncStorefront:
    """A client and its outbox for as long as an application runs.

    Make it where the application is made. Both are opened by `open`, by an ``async with`` statement, or else at their
    first use, and go on without a service.

    Parameters
    ----------
    make_client
        Makes the client.
    outbox
        The outbox's file.
    """

    def __init__(self, make_client: Callable[[], AsyncClient], outbox: str | PathLike[str]) -> None:
        self._make_client = make_client
        self._path = outbox
        self._opening = Lock()
        self._client: AsyncClient | None = None
        self._outbox: AsyncOutbox | None = None

    @property
    def client(self) -> AsyncClient:
        """The client, for everything that a placement has no word for."""
        client = self._client
        if client is None:
            with self._opening:
                client = self._client = self._client or self._make_client()
        return client

    @property
    def outbox(self) -> AsyncOutbox:
        """The outbox, for its `status` and `flush`."""
        outbox, client = self._outbox, self.client
        if outbox is None:
            with self._opening:
                outbox = self._outbox = self._outbox or AsyncOutbox(self._path, client)
        return outbox

    def placement(self, bandit: str, *, fallback: Sequence[str], fallback_size: int | None = None) -> AsyncPlacement:
        """Return where slates of a bandit are shown; the other arguments are those of the client's `recommend`."""
        return AsyncPlacement(self, bandit, fallback=fallback, fallback_size=fallback_size)

    def open(self) -> AsyncOutbox:
        """Open both, so that what an earlier process left in the outbox is delivered from now on; return the outbox."""
        return self.outbox

    async def close(self) -> None:
        """Close both; what is left in the outbox stays on disk."""
        client, outbox = self._client, self._outbox
        self._client = self._outbox = None
        if outbox is not None:
            await outbox.close()
        if client is not None:
            await client.close()

    # Starlette makes the application's state of what a lifespan returns: there is none.
    async def __aenter__(self) -> None:
        self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncPlacement:
    """Where an application shows slates of one bandit; `AsyncStorefront.placement` makes it."""

    def __init__(
        self, storefront: AsyncStorefront, bandit: str, *, fallback: Sequence[str], fallback_size: int | None
    ) -> None:
        self._storefront = storefront
        self._bandit = bandit
        self._fallback, self._fallback_size = fallback, fallback_size

    async def recommend(
        self,
        context: Iterable[float] = (),
        candidates: Iterable[str] | None = None,
        *,
        features: object = None,
        rules: Sequence[Rule | str] | None = None,
    ) -> Recommendation:
        """Return a slate within the client's `fallback_timeout`, and raise nothing; see the client's `recommend`."""
        return await self._storefront.client.recommend(
            self._bandit,
            context,
            candidates,
            features=features,
            rules=rules,
            fallback=self._fallback,
            fallback_size=self._fallback_size,
        )

    def with_slate(
        self, features: Callable[..., object] | None = None
    ) -> Callable[[Callable[..., Awaitable[R]]], Callable[..., Awaitable[R]]]:
        """Return a decorator of a view, which is given a slate as its argument `slate`.

        Frameworks that read a view's arguments see all but that one.

        Parameters
        ----------
        features
            Called with the view's own arguments; returns the features of the request.
        """

        def decorate(view: Callable[..., Awaitable[R]]) -> Callable[..., Awaitable[R]]:
            @functools.wraps(view)
            async def shown(*arguments: Any, **named: Any) -> R:  # noqa: ANN401 - whatever the view takes
                values = None if features is None else features(*arguments, **named)
                return await view(*arguments, slate=await self.recommend(features=values), **named)

            shown.__signature__ = _without_slate(view)  # type: ignore[attr-defined]
            return shown

        return decorate

    async def reward(
        self,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str | None = None,
        item_values: Mapping[str, float] | None = None,
    ) -> bool:
        """Write a reward into the outbox; see its `reward`."""
        return await self._storefront.outbox.reward(
            self._bandit, recommendation_id, value, reward_id=reward_id, item_values=item_values
        )

    async def activate(self, recommendation_id: str, *, shown: Iterable[str] | None = None) -> bool:
        """Write into the outbox that a slate was shown; see its `activate`."""
        return await self._storefront.outbox.activate(self._bandit, recommendation_id, shown=shown)


def _without_slate(view: Callable[..., object]) -> inspect.Signature:
    signature = inspect.signature(view)
    others = [parameter for name, parameter in signature.parameters.items() if name != _SLATE]
    return signature.replace(parameters=others)
