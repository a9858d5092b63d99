"""The asynchronous client's calls for those who operate the service."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

from topk_bandit.client.base import BaseClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from topk_bandit.client.operations import Operation, Page
    from topk_bandit.client.operator_values import (
        BanditOverview,
        EventPage,
        Explanation,
        HistoryPoint,
        ImportedLines,
        ServiceStatus,
        SkippedEvent,
        TenantStats,
        TopSlates,
        Verification,
    )
    from topk_bandit.client.rules import Rule

__all__ = ["AsyncOperators"]

T = TypeVar("T")


class AsyncOperators(BaseClient):
    """Reports to operators what the service did, and why; part of `topk_bandit.client.AsyncClient`.

    Where the service asks for keys, these calls need the scope `operate`.
    """

    @abstractmethod
    async def _run(self, operation: Operation[T], timeout: float | None) -> T: ...

    @abstractmethod
    def _pages(self, page_after: Callable[[str], Operation[Page[T]]], timeout: float | None) -> AsyncIterator[T]: ...

    async def explain(
        self, bandit: str, recommendation_id: str, *, absent: Iterable[str] = (), timeout: float | None = None
    ) -> Explanation:
        """Return why a slate was what it was.

        The model that decided is folded again if it has learned more since: give that some seconds. `NotFound` if there
        is no such recommendation, `FailedPrecondition` (LOG_TRIMMED) if the log does not go back so far any more.

        Parameters
        ----------
        absent
            Items of which `absent_items` says why the slate does not show them: at most 100.
        """
        return await self._run(self._operators.explain(bandit, recommendation_id, absent), timeout)

    async def top_slates(
        self,
        bandit: str,
        context: Iterable[float] = (),
        *,
        features: object = None,
        limit: int = 10,
        rules: Iterable[Rule | str] | None = None,
        timeout: float | None = None,
    ) -> TopSlates:
        """Return the slates of available items that the newest model expects most of.

        Parameters
        ----------
        context, features
            As for `recommend`.
        limit
            At most 100.
        rules
            Tried in place of the bandit's own, which stay as they are.
        """
        asked = self._operators.top_slates(bandit, context, features=features, limit=limit, rules=rules)
        return await self._run(asked, timeout)

    def list_tenants(self, *, timeout: float | None = None) -> AsyncIterator[str]:
        """Iterate over the ids of all tenants that have bandits or studies; `timeout` is for each page.

        A key has to be for every tenant.
        """
        return self._pages(self._operators.tenants, timeout)

    async def tenant_stats(self, *, timeout: float | None = None) -> TenantStats:
        """Return what the client's tenant uses."""
        return await self._run(self._operators.tenant_stats(), timeout)

    async def service_status(self, *, timeout: float | None = None) -> ServiceStatus:
        """Return how the answering worker and the store are; a key has to be for every tenant."""
        return await self._run(self._operators.service_status(), timeout)

    def list_bandit_overviews(
        self, *, every_tenant: bool = False, containing: str = "", timeout: float | None = None
    ) -> AsyncIterator[BanditOverview]:
        """Iterate over bandits at a glance, by tenant and id; `timeout` is for each page.

        Parameters
        ----------
        every_tenant
            Those of all tenants, for which a key has to be for every tenant.
        containing
            A part of tenant/bandit, whatever its case; empty for all.
        """

        def page_after(token: str) -> Operation[Page[BanditOverview]]:
            return self._operators.overviews(token, every_tenant=every_tenant, containing=containing)

        return self._pages(page_after, timeout)

    async def history(self, bandit: str, *, timeout: float | None = None) -> tuple[HistoryPoint, ...]:
        """Return how a bandit did over its life, oldest first: at most 193 intervals, all equally long."""
        return await self._run(self._operators.history(bandit), timeout)

    async def verify(self, bandit: str, *, timeout: float | None = None) -> Verification:
        """Fold a bandit's log again, as far back as it goes, and compare the outcome with the model that serves.

        It can take seconds.
        """
        return await self._run(self._operators.verify(bandit), timeout)

    async def export_events(
        self, bandit: str, cursor: str = "", *, start: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> EventPage:
        """Return a page of a bandit's log.

        Parameters
        ----------
        cursor
            The `next_cursor` of the page before; empty to begin.
        start
            Position to begin at, without a cursor; 0 is the oldest event that is left.
        limit
            At most 1,000. A page ends after a mebibyte, too.
        """
        return await self._run(self._operators.events(bandit, cursor, start=start, limit=limit), timeout)

    def export_state(self, bandit: str, *, timeout: float | None = None) -> AsyncIterator[str]:
        """Iterate over what there is of a bandit beside its log, as lines for `import_events`.

        `timeout` is for each page. `FailedPrecondition` (LOG_TRIMMED or LOG_REPLACED) if the log was trimmed or created
        anew meanwhile.
        """

        def page_after(token: str) -> Operation[Page[str]]:
            return self._operators.state(bandit, token)

        return self._pages(page_after, timeout)

    async def import_events(
        self, bandit: str, lines: Iterable[str], *, import_id: str, first_line: int, timeout: float | None = None
    ) -> ImportedLines:
        """Bring lines of a bandit, the last of which makes it; none ask how far the import is.

        Parameters
        ----------
        lines
            At most 1,000: what `export_state` gave, then an event a line, then the line that ends them; see
            ``operator_service.proto``.
        import_id
            What all parts of an import have in common.
        first_line
            Where the lines stand, from 0.
        """
        work = self._operators.lines(bandit, lines, import_id=import_id, first_line=first_line)
        return await self._run(work, timeout)

    async def skip_event(
        self, bandit: str, position: int, *, reason: str, timeout: float | None = None
    ) -> SkippedEvent:
        """Have an event passed over that can't be read or folded, and at which the bandit's learner stands.

        `FailedPrecondition` (LEARNER_NOT_STUCK) if it does not stand there.
        """
        return await self._run(self._operators.skip(bandit, position, reason=reason), timeout)
