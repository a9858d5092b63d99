"""A Personalizer loop on the service: what Rank, Reward and Activate of either kind do."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from topk_bandit.client import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from topk_bandit.compat.personalizer.errors import bad_request, not_found
from topk_bandit.compat.personalizer.events import Event
from topk_bandit.compat.personalizer.left_out import Fitting
from topk_bandit.compat.personalizer.placements import baseline_slate, place, probabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topk_bandit.client import AsyncClient, Recommendation
    from topk_bandit.compat.personalizer.bandits import BanditProvisioner, Ready
    from topk_bandit.compat.personalizer.events import EventsFile
    from topk_bandit.compat.personalizer.features import FlatFeatures
    from topk_bandit.compat.personalizer.messages import RankCall

__all__ = ["Loop"]

_SINGLE, _MULTI = "single", "multi"
_MOST_SLOTS = 12
_GRACE_SECONDS = 86_400.0
"""How much longer than the reward wait an event is known: a reward that is late is no error."""


class Loop:
    """One loop: a bandit for single-slot Ranks, and one for each number of slots.

    Parameters
    ----------
    bandit
        The name of the first; the others are called after it, such as ``home-3-slots``.
    apprentice
        Whether the shop's own choice is shown, and learned from.
    new_id
        Makes an id that is different each time.
    """

    def __init__(
        self,
        client: AsyncClient,
        provisioner: BanditProvisioner,
        events: EventsFile,
        *,
        bandit: str,
        apprentice: bool,
        new_id: Callable[[], str],
    ) -> None:
        self._client, self._provisioner, self._events = client, provisioner, events
        self._bandit, self._apprentice, self._new_id = bandit, apprentice, new_id
        self._fitting = Fitting()

    async def rank(self, call: RankCall) -> dict[str, Any]:
        """Choose an action, and return the answer of a Rank.

        Raises
        ------
        PersonalizerError, ClientError
            The call can't be answered.
        """
        event_id, [shown], slate, candidates = await self._choose(call, self._bandit)
        propensity = 1.0 if self._apprentice else slate.propensity
        chances = probabilities([one.id for one in call.actions], candidates, shown, propensity)
        ranking = [{"id": one, "probability": probability} for one, probability in chances.items()]
        return {"ranking": ranking, "eventId": event_id, "rewardActionId": shown}

    async def rank_slots(self, call: RankCall) -> dict[str, Any]:
        """Choose an action for each slot, and return the answer of a multi-slot Rank; it raises what `rank` does."""
        if len(call.slots) > _MOST_SLOTS:
            raise bad_request("slots", f"must be at most {_MOST_SLOTS}", code="InvalidRankRequest")
        event_id, shown, _, _ = await self._choose(call, f"{self._bandit}-{len(call.slots)}-slots")
        slots = [{"id": slot.id, "rewardActionId": one} for slot, one in zip(call.slots, shown, strict=True)]
        return {"slots": slots, "eventId": event_id}

    async def reward(self, event_id: str, value: float) -> None:
        """Post what the action of a single-slot event earned."""
        # A bandit of which the first reward counts does not look at its id; any other takes each as one more.
        await self._post(self._find(_SINGLE, event_id), value, reward_id=self._new_id(), final=False)

    async def reward_slots(self, event_id: str, values: Mapping[str, float]) -> None:
        """Post what the slots of an event earned, each by itself; the slate's reward is learned once all are posted."""
        event = self._find(_MULTI, event_id)
        if unknown := values.keys() - set(event.slots):
            raise bad_request("reward", f"the event has no slot {min(unknown)!r}", code="InvalidRewardRequest")
        last = list(values)[-1] if len(values) == len(event.slots) else None
        for slot, value in values.items():
            await self._post(event, value, reward_id=f"slot-{event.slots.index(slot)}", final=slot == last)

    async def activate(self, event_id: str) -> None:
        """Say that a single-slot event was shown."""
        await self._activate(self._find(_SINGLE, event_id))

    async def activate_slots(self, event_id: str) -> None:
        """Say that a multi-slot event was shown."""
        await self._activate(self._find(_MULTI, event_id))

    async def _choose(self, call: RankCall, name: str) -> tuple[str, tuple[str, ...], Recommendation, list[str]]:
        """Return the event, what to show, the slate behind it, and what it was chosen from."""
        ready = await self._provisioner.prepare(name, call)
        candidates = _candidates(call, ready)
        features = self._fitting.fit(f"contexts of {name}", call.features, ready.settings.context_schema)
        event_id = call.event_id or self._new_id()
        slate = await self._recommend(name, candidates, features, _digest(event_id, candidates, features))
        wanted = baseline_slate(call.slots, candidates) if self._apprentice else slate.items
        shown = place(wanted, call.slots, candidates)
        if shown is None:
            raise bad_request("slots", "exclude so much that some are left empty", code="InvalidRankRequest")
        if slate.id and not slate.degraded:  # of a degraded slate nobody knows whether it is recorded
            event = Event(name, slate.id, () if shown == slate.items else shown, tuple(one.id for one in call.slots))
            seconds = ready.settings.reward_wait.total_seconds() + _GRACE_SECONDS
            self._events.keep(_SINGLE if call.is_single else _MULTI, event_id, event, seconds=seconds)
            if not call.deferred:
                await self._activate(event)
        return event_id, shown, slate, candidates

    async def _recommend(
        self, name: str, candidates: list[str], features: FlatFeatures, request_id: str
    ) -> Recommendation:
        try:
            return await self._client.recommend(name, candidates=candidates, features=features, request_id=request_id)
        except (NotFound, InvalidArgument, FailedPrecondition):
            # It may be another bandit by now, made anew under the name.
            self._provisioner.forget(name)
            raise

    async def _activate(self, event: Event) -> None:
        await self._client.activate(event.bandit, event.recommendation_id, shown=event.shown or None)

    async def _post(self, event: Event, value: float, *, reward_id: str, final: bool) -> None:
        try:
            await self._client.reward(event.bandit, event.recommendation_id, value, reward_id=reward_id, final=final)
        except AlreadyExists:  # the earliest counts, as there
            return

    def _find(self, kind: str, event_id: str) -> Event:
        event = self._events.find(kind, event_id)
        if event is None:
            raise not_found(f"no event {event_id[:64]!r} is known; it is too old, or its Rank could not be recorded")
        return event


def _candidates(call: RankCall, ready: Ready) -> list[str]:
    """Return the actions that may be shown in one slot at least, in the shop's order."""
    candidates = [one for one in ready.action_ids if any(one not in slot.excluded for slot in call.slots)]
    if len(candidates) < len(call.slots):
        problem = f"{len(candidates)} can be shown, in {len(call.slots)} slots"
        raise bad_request("actions", problem, code="InvalidRankRequest")
    return candidates


def _digest(event_id: str, candidates: Sequence[str], features: FlatFeatures) -> str:
    """Return a request id: the same for a call that is sent again, another one for an event id that is used again."""
    named = sorted((name, sorted(value) if isinstance(value, frozenset) else value) for name, value in features.items())
    return blake2b(json.dumps([event_id, candidates, named]).encode(), digest_size=16).hexdigest()
