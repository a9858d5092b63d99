"""Outboxes of both clients, called from synchronous code."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from tests.client.conftest import Blocking

from topk_bandit.client import AsyncOutbox, Outbox

if TYPE_CHECKING:
    from pathlib import Path

    from tests.client.conftest import EitherClient

__all__ = ["BlockingOutbox", "EitherOutbox", "outbox_of"]


class BlockingOutbox:
    """An `AsyncOutbox`, on the event loop of its blocking client: it delivers while one of its methods runs."""

    def __init__(self, path: Path, client: Blocking, **options: object) -> None:
        self._runner = client._runner
        self._outbox = self._runner.run(self._make(path, client, options))

    async def _make(self, path: Path, client: Blocking, options: dict[str, Any]) -> AsyncOutbox:
        return AsyncOutbox(path, client._client, **options)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        method = getattr(self._outbox, name)

        def call(*arguments: object, **options: object) -> object:
            answer = method(*arguments, **options)
            assert inspect.isawaitable(answer)
            return self._runner.run(answered(answer))

        return call


async def answered(answer: Any) -> Any:  # noqa: ANN401
    return await answer


EitherOutbox = Outbox | BlockingOutbox


def outbox_of(client: EitherClient, path: Path, **options: Any) -> EitherOutbox:  # noqa: ANN401
    kind = BlockingOutbox if isinstance(client, Blocking) else Outbox
    return kind(path, client, **options)
