"""The asynchronous client's calls for those who operate the service."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.client.base import BaseClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topk_bandit.client.operations import Operation
    from topk_bandit.client.operator_values import Explanation, TopSlates

__all__ = ["AsyncOperators"]

T = TypeVar("T")


class AsyncOperators(BaseClient):
    """Tells operators what the service did, and why; part of `topk_bandit.client.AsyncClient`.

    Where the service asks for keys, these calls need the scope `operate`.
    """

    @abstractmethod
    async def _run(self, operation: Operation[T], timeout: float | None) -> T: ...

    async def explain(self, bandit: str, recommendation_id: str, *, timeout: float | None = None) -> Explanation:
        """Return why a slate was what it was.

        The model that decided is folded again if it has learned more since: give that some seconds. `NotFound` if there
        is no such recommendation, `FailedPrecondition` (LOG_TRIMMED) if the log does not go back so far any more.
        """
        return await self._run(self._operators.explain(bandit, recommendation_id), timeout)

    async def top_slates(
        self,
        bandit: str,
        context: Iterable[float] = (),
        *,
        features: object = None,
        limit: int = 10,
        timeout: float | None = None,
    ) -> TopSlates:
        """Return the slates of available items that the newest model expects most of.

        Parameters
        ----------
        context, features
            As for `recommend`.
        limit
            At most 100.
        """
        return await self._run(self._operators.top_slates(bandit, context, features=features, limit=limit), timeout)
