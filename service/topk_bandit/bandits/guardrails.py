"""Takes a bandit off by itself where its group is worse than its control group, and shows what groups earn."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from topk_bandit.bandits.lifts import describe_lift, find_guardrail_reason
from topk_bandit.domain.errors import CorruptDataError, ExhaustedError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from topk_bandit.bandits.administration import Bandits
    from topk_bandit.bandits.model import Model
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.domain.hooks import Hooks

__all__ = ["Guardrails"]

_log = logging.getLogger(__name__)

ROUND_SECONDS = 5.0


class _Models(Protocol):
    """Where guardrails find models."""

    def find_own(self) -> dict[BanditName, Model]:
        """Return the models that are here of bandits that this worker owns."""
        ...

    async def follow(self, name: BanditName) -> Model:
        """Return a bandit's model at its log's end."""
        ...


class Guardrails:
    """Looks at each bandit of this worker that has a control group, round after round.

    Parameters
    ----------
    round_seconds
        How long it rests after each round.
    """

    def __init__(
        self, models: _Models, bandits: Bandits, *, hooks: Hooks, round_seconds: float = ROUND_SECONDS
    ) -> None:
        self._models = models
        self._bandits = bandits
        self._hooks = hooks
        self._round_seconds = round_seconds
        self._failing: set[BanditName] = set()

    async def run(self) -> None:
        """Go round until cancelled."""
        while True:
            await self.go_round()
            await asyncio.sleep(self._round_seconds)

    async def go_round(self) -> None:
        """Look at each bandit once; what one fails with stops no other, and is logged once while it lasts."""
        models = self._models.find_own()
        self._failing &= models.keys()
        for name, model in models.items():
            await asyncio.sleep(0)  # calls come first, however many bandits there are
            try:
                await self._look(name, model)
            except (UnavailableError, ExhaustedError, CorruptDataError, NotFoundError) as error:
                # The store's own alerts report that it is away or full, and the watch over damage what is damaged.
                _log.debug("a bandit can't be taken off now: %s", error, extra={"bandit": str(name)})
            except Exception:  # noqa: BLE001 - one bandit that fails must not stop the others, nor later rounds
                if name not in self._failing:
                    _log.exception("the groups of a bandit can't be compared", extra={"bandit": str(name)})
                self._failing.add(name)
            else:
                self._failing.discard(name)

    async def _look(self, name: BanditName, model: Model) -> None:
        lift = describe_lift(model)
        if lift is None:
            return
        shortfall = 0.0 if lift.ratio is None else max(0.0, 1.0 - lift.ratio.high)
        self._hooks.compared(str(name), shortfall=shortfall, has_odd_groups=lift.has_odd_groups)
        if not find_guardrail_reason(model):
            return
        # Its settings may be others by now, or its groups have begun anew.
        reason = find_guardrail_reason(await self._models.follow(name))
        if reason and await self._bandits.take_off(name, reason):
            _log.warning("a guardrail took a bandit off: %s", reason, extra={"bandit": str(name)})
            self._hooks.guarded()
