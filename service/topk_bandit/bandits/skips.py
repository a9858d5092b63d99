"""Have an event passed over that a bandit's learner can't read or fold, so that it goes on learning.

An event that this worker can fold is never passed over. What the event could have said of items and settings is said
anew at the log's end, as the store has it; a reward that was in it is not learned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import NotFoundError, NotReadyError, TopkBanditError, UnavailableError
from topk_bandit.domain.operators import SkippedEvent
from topk_bandit.store.events import EventSkipped, ItemsChanged, SettingsChanged
from topk_bandit.store.log import Skip

if TYPE_CHECKING:
    from collections.abc import Callable

    from topk_bandit.bandits.model import Model
    from topk_bandit.bandits.model_cache import ModelCache
    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.store.log import BanditRecord, Store

__all__ = ["Skips"]

SKIPS_PER_CALL = 16
"""How often a call looks again because somebody else changes items or settings, before it gives up."""


class Skips:
    """Passes over events.

    Parameters
    ----------
    clock_ms
        The time that is noted.
    """

    def __init__(self, store: Store, models: ModelCache, *, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._models = models
        self._clock_ms = clock_ms

    async def skip_event(self, name: BanditName, position: int, *, reason: str) -> SkippedEvent:
        """Pass over the event at a position, and follow the log; one that was passed over before stays so.

        Raises
        ------
        NotReadyError
            LEARNER_NOT_STUCK: this worker's learner does not stand before that event. EVENT_NOT_SKIPPABLE: it is the
            one that makes the bandit.
        UnavailableError
            The store is away, or items and settings change all the time.
        """
        for _ in range(SKIPS_PER_CALL):
            model, problem = await self._follow(name)
            if position in model.skipped:
                return SkippedEvent(model.version, (await self._store.get_bandit(name)).log_position, problem)
            if not problem or model.version != position - 1:
                raise _not_stuck(name, position, model, problem)
            skip = await self._put_together(name, position, reason=reason, model=model)
            await self._store.skip_event(name, skip)
        raise UnavailableError(f"items and settings of {name} change faster than an event can be passed over")

    async def _follow(self, name: BanditName) -> tuple[Model, str]:
        """Return the model, and why it ends before the log does; "" if it does not."""
        try:
            return await self._models.follow(name), ""
        except (NotFoundError, UnavailableError):
            raise
        except Exception as error:
            model = self._models.peek_model(name)
            if model is None:
                raise
            # Only what this service says of its own data is returned; of others a caller finds the name in the log.
            return model, str(error) if isinstance(error, TopkBanditError) else type(error).__name__

    async def _put_together(self, name: BanditName, position: int, *, reason: str, model: Model) -> Skip:
        record = await self._store.get_bandit(name)
        return Skip(
            position,
            EventSkipped(reason, self._clock_ms()),
            at_ms=model.last.at_ms,
            incarnation=record.incarnation,
            revision=record.revision,
            items_position=record.items_position,
            settings=None if record.settings == model.settings else SettingsChanged(record.settings),
            items=await self._tell_items(record, model),
        )

    async def _tell_items(self, record: BanditRecord, model: Model) -> ItemsChanged | None:
        """Return the items as they are now, if they have changed since the model."""
        if record.items_position <= model.version:
            return None
        items = await self._store.list_items(record.name)
        known = {item_id for item_id in model.items.ids if item_id is not None}.difference(model.items.retired)
        return ItemsChanged(tuple(items), tuple(sorted(known - {item.item_id for item in items})))


def _not_stuck(name: BanditName, position: int, model: Model, problem: str) -> NotReadyError:
    stands = f"stands before event {model.version + 1} and can't go on: {problem}"
    found = stands if problem else "follows the log to its end"
    return NotReadyError("LEARNER_NOT_STUCK", f"event {position} can't be passed over, the learner of {name} {found}")
