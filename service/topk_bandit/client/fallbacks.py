"""The shop's own ranking in place of a slate that did not come: cut, counted, and heard of."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topk_bandit.client.arguments import texts
from topk_bandit.client.breakers import Breaker
from topk_bandit.client.errors import ClientError, ErrorDetails, Unavailable, Unexpected, is_final
from topk_bandit.client.rules import allowed_of
from topk_bandit.client.values import PagePlacement, Recommendation, SlatePage, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topk_bandit.client.breakers import BreakerPolicy

__all__ = ["FALLBACK_SECONDS", "Fallbacks", "check_fallbacks"]

FALLBACK_SECONDS = 0.15
"""How long a page waits for a slate that it has a fallback for, by default."""

_OPEN = "BREAKER_OPEN"

_log = logging.getLogger("topk_bandit.client")


def check_fallbacks(placements: Iterable[Any]) -> list[Any]:
    """Return the placements of a page with their own rankings as lists, or raise `InvalidArgument` for what is none."""
    return [
        replace(one, fallback=texts(f"placements[{place}].fallback", one.fallback))
        if isinstance(one, PagePlacement) and one.fallback is not None
        else one
        for place, one in enumerate(placements)
    ]


class Fallbacks:
    """What one client showed, and why; safe to share between threads.

    Parameters
    ----------
    breaker
        When not to ask at all; None asks always.
    clock
        Seconds, monotonic.
    """

    def __init__(self, breaker: BreakerPolicy | None, *, clock: Callable[[], float]) -> None:
        self._breaker = Breaker(breaker, clock=clock)
        self.renew()
        self._sources: Counter[Source] = Counter()
        self._kinds: Counter[tuple[str, str]] = Counter()
        self._sizes: dict[str, int] = {}

    def renew(self) -> None:
        """Be free of whoever held a lock, of whom this process has nothing; see `topk_bandit.client.forks`."""
        self._lock = threading.Lock()
        self._breaker.renew()

    @property
    def sources(self) -> Mapping[Source, int]:
        """How many slates came from where."""
        with self._lock:
            return dict(self._sources)

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many slates were the shop's own ranking, by why."""
        reasons: Counter[str] = Counter()
        with self._lock:
            for (_, reason), count in self._kinds.items():
                reasons[reason] += count
        return dict(reasons)

    def asks(self) -> bool:
        """Return whether to ask the service at all."""
        return self._breaker.lets_through()

    def came(self, bandit: str, slate: Recommendation) -> Recommendation:
        """Note a slate of the service, and return it."""
        self._breaker.note(answered=True)
        return self._served(bandit, slate)

    def instead(
        self, bandit: str, ranking: Sequence[str], *, size: int | None, error: Exception | None
    ) -> Recommendation:
        """Return the shop's own slate, because of an error, or because the service was not asked."""
        self._heard(error)
        return self._own(bandit, ranking, size=size, error=error)

    def page_came(self, placements: Sequence[object], page: SlatePage) -> SlatePage:
        """Note a page of the service, and return it with own rankings where a slate is missing."""
        self._breaker.note(answered=True)
        slates = self._fill(placements, page.slates)
        ids = [one.id for one in slates if isinstance(one, Recommendation)]
        return SlatePage("" if ids and not any(ids) else page.id, slates, page.bandits)

    def page_instead(self, placements: Sequence[object], *, error: Exception | None) -> SlatePage:
        """Return a page of own rankings, because of an error, or because the service was not asked."""
        self._heard(error)
        return SlatePage("", self._fill(placements, [error] * len(placements)), ("",) * len(placements))

    def _fill(
        self, placements: Sequence[object], slates: Sequence[Recommendation | Exception | None]
    ) -> tuple[Recommendation | ClientError, ...]:
        """Return slates with own rankings where one is missing, which leave out what the page shows elsewhere.

        That is what the service shows, whatever its place, and what own rankings before it do.
        """
        shown = {item for one in slates if isinstance(one, Recommendation) for item in one.items}
        filled: list[Recommendation | ClientError] = []
        for placement, slate in zip(placements, slates, strict=True):
            if not isinstance(placement, PagePlacement):  # nothing says what to show, and no page breaks by it
                filled.append(_error_instead(slate if isinstance(slate, Exception) else None))
            elif isinstance(slate, Recommendation):
                filled.append(self._served(placement.bandit, slate))
            elif placement.fallback is None:
                filled.append(_error_instead(slate))
            else:
                left = allowed_of(placement.fallback, placement.rules)
                ranking = [item for item in left if item not in shown]
                own = self._own(placement.bandit, ranking, size=placement.fallback_size, error=slate)
                shown.update(own.items)
                filled.append(own)
        return tuple(filled)

    def _heard(self, error: Exception | None) -> None:
        if error is not None:
            self._breaker.note(answered=_is_mistake(error))

    def _served(self, bandit: str, slate: Recommendation) -> Recommendation:
        with self._lock:
            self._sources[slate.source] += 1
            self._sizes[bandit] = len(slate.items)
        return slate

    def _own(self, bandit: str, ranking: Sequence[str], *, size: int | None, error: Exception | None) -> Recommendation:
        reason = _OPEN if error is None else _reason(error)
        bandit = _name_of(bandit)
        with self._lock:
            size = self._sizes.get(bandit) if size is None else size
            self._sources[Source.FALLBACK] += 1
            self._kinds[bandit, reason] += 1
            first = self._kinds[bandit, reason] == 1
        if first and error is not None:
            _tell(bandit, error)
        return _own_slate(_cut(tuple(ranking), size))


def _error_instead(error: Exception | None) -> ClientError:
    """Return the error in the place of a slate that has no fallback."""
    if isinstance(error, ClientError):
        return error
    if error is None:
        return Unavailable(ErrorDetails("UNAVAILABLE", "the service did not answer the calls before", reason=_OPEN))
    return Unexpected(ErrorDetails("UNKNOWN", f"{type(error).__name__}: {error}"))


def _is_mistake(error: Exception) -> bool:
    """Return whether the caller has to change something; the service itself is well, as far as one can tell."""
    return is_final(error) if isinstance(error, ClientError) else True


def _reason(error: Exception) -> str:
    if isinstance(error, ClientError):
        return error.details.reason or error.details.code
    return type(error).__name__


def _tell(bandit: str, error: Exception) -> None:
    level = logging.ERROR if _is_mistake(error) else logging.WARNING
    _log.log(
        level,
        "%s shows the shop's own ranking: %s (this is said once, Client.fallbacks counts)",
        bandit,
        error,
        exc_info=None if isinstance(error, ClientError) else error,
    )


def _name_of(bandit: object) -> str:
    """Return what a bandit is counted under, whatever was given as its name."""
    return bandit if isinstance(bandit, str) else type(bandit).__name__


def _cut(ranking: tuple[str, ...], size: object) -> tuple[str, ...]:
    """Return as many of a ranking; a size that is none, such as a text out of an address, breaks no page."""
    return ranking[:size] if isinstance(size, int) and size >= 0 else ranking


def _own_slate(items: tuple[str, ...]) -> Recommendation:
    return Recommendation(
        id="",
        items=items,
        propensity=0.0,
        mean=0.0,
        standard_deviation=0.0,
        regret_bound=0.0,
        estimated_regret=0.0,
        explored=False,
        baseline=False,
        model_version=0,
        observations=0,
        reward_deadline=None,
        source=Source.FALLBACK,
        position_propensities=(),
        regret_confidence=0.0,
        passed_over=0,
    )
