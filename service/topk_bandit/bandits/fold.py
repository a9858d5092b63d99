"""The fold of a bandit's log.

A model is a value, and `fold` returns the model after the next event. The same events in the same order give the same
model to the bit, in every process and wherever it pauses. At a *checkpoint*, which depends on counts of events only,
the posterior is rebuilt from its rows, and a snapshot can be taken. Folding never reads a clock, a store or a random
number.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topk_bandit.bandits.comparison import NOTHING_COMPARED, Comparison
from topk_bandit.bandits.contexts import fitting_features
from topk_bandit.bandits.exposures import Exposures
from topk_bandit.bandits.items import Items
from topk_bandit.bandits.model import Model, RegretSums, Tally, UnitlessPhase, half_life_of
from topk_bandit.bandits.places import make_space
from topk_bandit.bandits.priors import PriorItems, tabulate_utilities
from topk_bandit.bandits.reward_curve import RewardCurve, change_of
from topk_bandit.domain.errors import CorruptDataError, TopkBanditError
from topk_bandit.domain.features import NO_FEATURES, Features
from topk_bandit.domain.replacing import replace
from topk_bandit.learning.arithmetic import describe_arithmetic
from topk_bandit.learning.corrections import can_correct, correct, hear, revise
from topk_bandit.learning.encoding import Encoder
from topk_bandit.learning.item_features import ItemFeatures
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.learning.recent_observations import PastRows
from topk_bandit.learning.state_changes import (
    change_contexts,
    change_item_features,
    change_kernel,
    change_prior_mean,
    change_prior_of_new_items,
    forget,
)
from topk_bandit.store.events import (
    Activated,
    BanditCreated,
    BanditReset,
    EventSkipped,
    Expired,
    Imported,
    ItemsChanged,
    Lapsed,
    LoggedEvent,
    Recommended,
    RewardAmended,
    RewardCollected,
    Rewarded,
    RewardRevised,
    SettingsChanged,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.bandits import BanditSettings, Item, Prior
    from topk_bandit.domain.features import Context
    from topk_bandit.domain.slates import ItemValues, Recommendation
    from topk_bandit.learning.limits import Limits
    from topk_bandit.store.events import Event, PastSlate, Shown

__all__ = ["MOST_PHASES", "begin", "fold", "folds_without_refit"]

_FIRST_PHASE = UnitlessPhase(RegretSums(), RegretSums())

MOST_PHASES = 8
"""So many are counted each by itself; the newest one has what later ones add."""


@contextmanager
def _folding(logged: LoggedEvent) -> Iterator[None]:
    """Raise `CorruptDataError`, with its position, for an event that can't follow or that the learner refuses.

    Who wrote it was answered long ago, and whoever has the log folded now gets no field of theirs.
    """
    try:
        yield
    except TopkBanditError as error:
        raise CorruptDataError(f"event {logged.position} can't be folded: {error}") from error


def folds_without_refit(model: Model, events: Sequence[LoggedEvent]) -> bool:
    """Return whether all that the next events of a log do is known to be a step for each: no refit is among them."""
    return len(events) < model.events_before_refit and all(isinstance(one.event, _OF_A_SLATE) for one in events)


def begin(incarnation: str, first: LoggedEvent, *, limits: Limits) -> Model:
    """Return the model after the first event of a log.

    Raises
    ------
    CorruptDataError
        The event can't begin a log.
    """
    with _folding(first):
        return _begin(incarnation, first, limits=limits)


def _begin(incarnation: str, first: LoggedEvent, *, limits: Limits) -> Model:
    if not isinstance(first.event, BanditCreated):
        raise CorruptDataError(f"a log begins with {type(first.event).__name__}")
    settings = first.event.settings
    kernel = kernel_of(settings.kernel, settings.item_capacity, settings.slate_size)
    encoder, item_features = None, None
    if settings.context_schema is not None:
        encoder = Encoder.initial(settings.context_schema)
    if settings.item_schema is not None:
        item_features = ItemFeatures.initial(settings.item_schema, n_places=kernel.n_items)
        kernel = kernel.with_item_features(item_features.rows)
    state = State.initial(
        kernel,
        context_dim=settings.context_dim,
        limits=limits,
        half_life=half_life_of(settings),
        encoded=encoder is not None,
        trusts_rewards=settings.trusts_rewards,
    )
    model = Model(
        incarnation,
        settings,
        Items(),
        PriorItems(),
        state,
        Tally(),
        first,
        arithmetic=describe_arithmetic(),
        encoder=encoder,
        item_features=item_features,
        since_checkpoint=1,
        comparison=Comparison(since_ms=first.at_ms, since_position=first.position)
        if settings.control_share or settings.conservative_share
        else NOTHING_COMPARED,
        exposures=Exposures.of(settings),
    )
    model = replace(model, history=model.history.begin(first.at_ms, model.totals))
    return _adopt_prior(model, first.event.prior) if settings.prior_digest else model


def fold(model: Model, logged: LoggedEvent) -> Model:
    """Return the model after the next event of its log.

    Raises
    ------
    CorruptDataError
        The event can't follow.
    """
    with _folding(logged):
        return _fold(model, logged)


def _fold(model: Model, logged: LoggedEvent) -> Model:
    if logged.position != model.version + 1:
        raise CorruptDataError(f"it can't follow event {model.version}: events are missing, or in another order")
    applied = _note_unit(_apply(model, logged), logged)
    after = replace(
        _time_rewards(_add_up(applied, before=model), logged, before=model),
        last=logged,
        comparison=model.comparison.after(logged, model.settings, has_unit=model.has_unit),
        exposures=model.exposures.after(logged, applied.items),
        since_checkpoint=model.since_checkpoint + 1,
        aside_since_checkpoint=model.aside_since_checkpoint + _is_aside(logged.event),
    )
    if model.history.ends_before(logged.at_ms):
        after = replace(after, history=model.history.begin(logged.at_ms, model.totals))
    is_refit = not after.state.posterior.is_of_one_fit_with(model.state.posterior)
    if is_refit and not _changes_a_fit(logged.event):
        return replace(after, since_checkpoint=0, aside_since_checkpoint=0)
    if after.events_before_checkpoint <= 0:
        refit = replace(after, state=after.state.refit(logged.at_ms))
        return replace(_add_up(refit, before=after), since_checkpoint=0, aside_since_checkpoint=0)
    return after


def _add_up(model: Model, *, before: Model) -> Model:
    """Return the model whose tally has the sum of the rewards that count now: a refit may judge some anew."""
    if model.state.counts_as(before.state) and model.tally.aside_sum == before.tally.aside_sum:
        return model
    reward_sum = model.state.counted.reward_sum + model.tally.aside_sum
    return replace(model, tally=replace(model.tally, reward_sum=reward_sum))


def _time_rewards(model: Model, logged: LoggedEvent, *, before: Model) -> Model:
    """Return the model that knows when a slate earned what it did; once all is learned anew, that is, too."""
    if model.state.begun_at != before.state.begun_at:
        return replace(model, reward_curve=RewardCurve())
    change = change_of(logged.event, model.settings.reward_aggregation)
    if change is None or change.shown_ms <= model.state.begun_at:
        return model
    growth = abs(_usual_reward(model, change.value)) - abs(_usual_reward(model, change.before))
    wait_ms = model.settings.reward_wait_ms
    curve = model.reward_curve.after(change, growth, at_ms=logged.at_ms, wait_ms=wait_ms)
    return replace(model, reward_curve=curve)


_OF_A_SLATE = Recommended | Activated | RewardCollected | Rewarded | Expired | Lapsed


def _is_aside(event: Event) -> bool:
    """Return whether an event says that its slate was set aside."""
    if isinstance(event, RewardAmended):
        return event.before is not None
    return isinstance(event, _OF_A_SLATE) and event.aside


def _changes_a_fit(event: Event) -> bool:
    """Return whether an event goes on after a refit, with a pending row or other rewards.

    What comes of it is no function of a `Checkpoint`, to the bit.
    """
    if isinstance(event, RewardRevised):
        return event.before is not None
    return isinstance(event, Recommended | Activated | RewardAmended)


def _apply(model: Model, logged: LoggedEvent) -> Model:
    match logged.event:
        case BanditCreated():
            raise CorruptDataError(f"event {logged.position} creates the bandit again")
        case SettingsChanged() | BanditReset():
            return _change_bandit(model, logged.event, at_ms=logged.at_ms)
        case ItemsChanged() as change:
            return replace(_change_items(model, change, at_ms=logged.at_ms), items_position=logged.position)
        case Recommended() as recommended:
            return _open_slate(model, recommended)
        case Activated() | Lapsed() | RewardCollected() | RewardAmended() | RewardRevised() | EventSkipped():
            return _follow_slate(model, logged)
        case Rewarded() | Expired() as end:
            return _end_slate(_check_open(model, logged), end, at_ms=logged.at_ms)
        case Imported(_, _, slates):
            return _learn_history(model, slates, at_ms=logged.at_ms)


def _change_bandit(model: Model, event: SettingsChanged | BanditReset, *, at_ms: int) -> Model:
    if isinstance(event, BanditReset):
        return _forget(model, at_ms=at_ms)
    settings, known, encoder = event.settings, model.settings, model.encoder
    if model.skipped and event.prior is None and settings.prior_digest not in {"", known.prior_digest}:
        # The event that had the prior was passed over: the one before stays.
        settings = replace(settings, prior_study=known.prior_study, prior_digest=known.prior_digest)
    state = model.state.with_half_life(half_life_of(settings)).with_trust(trusts_rewards=settings.trusts_rewards)
    state = _with_capacity(state, settings, at_ms=at_ms)
    changed = replace(model, settings=settings, state=state)
    if encoder is not None and settings.context_schema is not None:
        changed = _recode(changed, encoder.with_schema(settings.context_schema))
    changed = _grow_item_features(changed)
    return changed if settings.prior_digest == known.prior_digest else _adopt_prior(changed, event.prior)


def _forget(model: Model, *, at_ms: int) -> Model:
    """Return the model that knows its items, its prior and what contexts are like, and nothing of rewards."""
    settings, known = model.settings, model.state.posterior.kernel
    kernel = kernel_of(settings.kernel, known.n_items, settings.slate_size)
    if model.item_features is not None:
        kernel = kernel.with_item_features(model.item_features.rows)
    return replace(model, state=forget(model.state, kernel, at_ms), items=model.items.forget())


def _with_capacity(state: State, settings: BanditSettings, *, at_ms: int) -> State:
    """Return the state whose kernel has at least the capacity that the settings say; what was learned is kept."""
    if settings.item_capacity <= state.posterior.kernel.n_items:
        return state
    return change_kernel(state, kernel_of(settings.kernel, settings.item_capacity, settings.slate_size), at_ms)


def _grow_item_features(model: Model) -> Model:
    """Return the model whose items may have the features that its settings say, in all places of the kernel."""
    schema, n_places = model.settings.item_schema, model.state.posterior.kernel.n_items
    if schema is None:
        return model
    known = model.item_features or ItemFeatures.initial(schema, n_places=n_places)
    return _with_item_features(model, known.with_places(n_places).with_schema(schema))


def _with_item_features(model: Model, features: ItemFeatures) -> Model:
    return replace(model, item_features=features, state=change_item_features(model.state, features.rows))


def _adopt_prior(model: Model, prior: Prior | None) -> Model:
    """Return the model with the prior that its settings name; what was learned from rewards stays."""
    settings, kernel = model.settings, model.state.posterior.kernel
    if (prior is None) == bool(settings.prior_digest):
        raise CorruptDataError(f"the log names the prior {settings.prior_digest!r} and has {prior and prior.study!r}")
    if prior is None:
        return replace(model, prior_items=PriorItems(), state=change_prior_mean(model.state, None))
    prior_items = PriorItems.of([utility.item_id for utility in prior.utilities])
    constants, slopes = tabulate_utilities(prior, context_dim=settings.context_dim)
    prior_mean = PriorMean.of(kernel, constants, slopes, prior_items.find_rows(model.items, n_items=kernel.n_items))
    return replace(model, prior_items=prior_items, state=change_prior_mean(model.state, prior_mean))


def _change_items(model: Model, change: ItemsChanged, *, at_ms: int) -> Model:
    """Return the model whose new items have places, and whose prior mean has the prior's utilities of them."""
    if model.skipped:
        change = replace(change, retired=tuple(filter(model.items.knows, change.retired)))
    change = replace(change, upserted=tuple(_fitting_item(model.settings, item) for item in change.upserted))
    wanted = len(model.items.find_new(change))
    items, state = make_space(model.items, model.state, wanted, settings=model.settings, at_ms=at_ms)
    items = items.apply(change)
    state, prior_mean = state.with_leaving(items.retired_places), state.study_mean
    if prior_mean is not None:
        rows = model.prior_items.find_rows(items, n_items=len(prior_mean.row_of))
        state = change_prior_of_new_items(state, prior_mean.with_rows(rows))
    return _take_features(replace(model, items=items, state=state), change)


def _fitting_item(settings: BanditSettings, item: Item) -> Item:
    """Return an item with those of its features that are of the bandit's schema."""
    fitting = NO_FEATURES if settings.item_schema is None else fitting_features(settings.item_schema, item.features)
    return item if fitting is item.features else replace(item, features=fitting)


def _take_features(model: Model, change: ItemsChanged) -> Model:
    """Return the model that knows the features of a change's items, and forgot the items that lost their places."""
    features, items = model.item_features, model.items
    if features is None:
        return model
    n_places = model.state.posterior.kernel.n_items
    upserted = {item.item_id: item.features for item in change.upserted}
    places = items.find_indices(list(upserted))
    free = items.find_free(n_places)
    return _with_item_features(model, features.with_places(n_places).change(places, [*upserted.values()], free=free))


def _open_slate(model: Model, event: Recommended) -> Model:
    recommendation, tally = event.recommendation, model.tally
    model = model if model.has_unit(recommendation) else _add_unitless(model, recommendation)
    inactive = model.settings.requires_activation
    if not event.aside:
        model = _take_slate(model, event, inactive=inactive)
    return replace(
        model,
        tally=replace(
            tally,
            recommendations=tally.recommendations + 1,
            inactive=tally.inactive + inactive,
            explored=tally.explored + recommendation.explored,
            passed_over=tally.passed_over + recommendation.passed_over,
            regret_bound_sum=tally.regret_bound_sum + recommendation.regret_bound,
            estimated_regret_sum=tally.estimated_regret_sum + recommendation.estimated_regret,
            set_aside=tally.set_aside + event.aside,
        ),
    )


def _add_unitless(model: Model, recommendation: Recommendation) -> Model:
    """Return the model with the regrets of a slate that have no unit."""
    regrets = RegretSums(recommendation.regret_bound, recommendation.estimated_regret)
    *before, newest = model.unitless or (_FIRST_PHASE,)
    return replace(model, unitless=(*before, newest._replace(added=newest.added.plus(regrets))))


def _note_unit(model: Model, logged: LoggedEvent) -> Model:
    """Return the model that knows since which event two rewards differ; after a reset they have to differ again."""
    if isinstance(logged.event, BanditReset) and model.unit_from:
        begun = () if len(model.unitless) >= MOST_PHASES else (UnitlessPhase(model.all_regrets, RegretSums()),)
        model = replace(model, unit_from=0, unitless=(*model.unitless, *begun))
    if model.unit_from or not model.state.posterior.rewards_vary:
        return model
    return replace(model, unit_from=logged.position)


def _take_slate(model: Model, event: Recommended, *, inactive: bool) -> Model:
    """Return the model that knows of a slate, and of its context: its items keep their places until its deadline."""
    recommendation = event.recommendation
    is_known = not model.skipped or model.items.have_places(recommendation.slate)
    if is_known:
        ranking = model.items.find_indices(recommendation.slate)
        model = replace(model, items=model.items.show(ranking, deadline_ms=recommendation.deadline_ms))
    model = _observe(model, event.request.context)
    if is_known and not inactive:
        model = _show_ranking(model, recommendation.recommendation_id, event.request.context, ranking)
    return model


def _show_ranking(model: Model, recommendation_id: str, context: Context, ranking: NDArray[np.int32]) -> Model:
    if recommendation_id in model.state.pending_ids:
        raise CorruptDataError(f"the log opens {recommendation_id!r}, which is open")
    return replace(model, state=model.state.shown(recommendation_id, model.encode(context), ranking))


def _follow_slate(model: Model, logged: LoggedEvent) -> Model:
    """Take in what happened to a slate beside its beginning and its end, or that this is not known."""
    tally = model.tally
    if isinstance(logged.event, Activated | Lapsed):
        if not (tally.inactive or model.skipped):
            raise CorruptDataError(f"event {logged.position} is about an inactive recommendation, and there is none")
        tally = replace(tally, inactive=max(tally.inactive - 1, 0))
    match logged.event:
        case Activated(recommendation_id, shown, instead, aside):
            model = replace(model, tally=replace(tally, shown_otherwise=tally.shown_otherwise + instead))
            return model if aside else _activate_slate(model, recommendation_id, shown)
        case Lapsed():
            return replace(model, tally=replace(tally, lapsed=tally.lapsed + 1))
        case RewardAmended() as amended:
            return _correct_reward(model, amended)
        case RewardRevised() as revised:
            return _revise_reward(model, revised, logged)
        case EventSkipped():
            return replace(model, skipped=model.skipped | {logged.position})
    return model


def _activate_slate(model: Model, recommendation_id: str, shown: Shown) -> Model:
    """Show a slate that was recommended before, or another one; its items keep their places until its deadline."""
    if not model.items.have_places(shown.slate):
        return model
    ranking = model.items.find_indices(shown.slate)
    items = model.items.show(ranking, deadline_ms=shown.at_ms + model.settings.reward_wait_ms)
    return _show_ranking(replace(model, items=items), recommendation_id, shown.context, ranking)


def _observe(model: Model, context: Context) -> Model:
    """Return the model whose encoder has seen one more context."""
    if model.encoder is None or not isinstance(context, Features):
        return model
    return _recode(model, model.encoder.observe(context))


def _recode(model: Model, encoder: Encoder) -> Model:
    """Return the model with another encoder, and the contexts of its rows as that one gives them."""
    before, state = model.encoder, model.state
    if encoder is before:
        return model
    if before is not None and not encoder.encodes_alike(before):
        shared = math.sqrt(state.shared)
        state = change_contexts(state, lambda contexts, sizes: encoder.recode(contexts, sizes, before, shared=shared))
    return replace(model, encoder=encoder, state=state)


def _check_open(model: Model, logged: LoggedEvent) -> Model:
    if not (model.open_slates or model.skipped):
        raise CorruptDataError(f"event {logged.position} ends a recommendation, and none is open")
    return model


def _end_slate(model: Model, event: Rewarded | Expired, *, at_ms: int) -> Model:
    if event.aside:
        return _end_aside(model, event)
    if isinstance(event, Rewarded):
        return _take_reward(model, event, at_ms=at_ms)
    return _expire_slate(model, event, at_ms=at_ms)


def _end_aside(model: Model, event: Rewarded | Expired) -> Model:
    """Count the end of a slate that is not learned from, and its reward as it would have been learned."""
    tally = model.tally
    reward = event.value if isinstance(event, Rewarded) else event.default_reward
    counted = replace(
        tally,
        expirations=tally.expirations + isinstance(event, Expired),
        aside_rewards=tally.aside_rewards + isinstance(event, Rewarded),
        aside_defaults=tally.aside_defaults + (isinstance(event, Expired) and reward is not None),
        aside_sum=tally.aside_sum + _usual_reward(model, reward),
    )
    if event.recommendation_id not in model.state.pending_ids:
        return replace(model, tally=counted)
    # It was set aside since it was shown, by a stage that learns nothing.
    closed = model.state.closed(event.recommendation_id)
    return replace(model, state=closed, tally=replace(counted, set_aside=counted.set_aside + 1))


def _usual_reward(model: Model, reward: float | None) -> float:
    """Return a reward as it counts now in the mean, 0 for none."""
    return 0.0 if reward is None else model.state.reward_in_range(reward)


def _take_reward(model: Model, event: Rewarded, *, at_ms: int) -> Model:
    """Learn a reward, or only count it if an item of its slate has lost its place meanwhile."""
    if model.items.have_places(event.shown.slate):
        learned = _Learned(event.recommendation_id, event.value, event.item_values, event.shown)
        return _learn_reward(model, learned, at_ms=at_ms)
    tally = replace(model.tally, unlearned=model.tally.unlearned + 1)
    return replace(model, state=model.state.closed(event.recommendation_id), tally=tally)


def _expire_slate(model: Model, event: Expired, *, at_ms: int) -> Model:
    tally = replace(model.tally, expirations=model.tally.expirations + 1)
    if event.default_reward is not None and event.shown is None:
        raise CorruptDataError(f"the log has a default reward for {event.recommendation_id!r}, and not what was shown")
    if event.default_reward is None or event.shown is None or not model.items.have_places(event.shown.slate):
        return replace(model, state=model.state.closed(event.recommendation_id), tally=tally)
    expired = replace(model, tally=replace(tally, defaults=tally.defaults + 1))
    learned = _Learned(event.recommendation_id, event.default_reward, event.item_values, event.shown)
    return _learn_reward(expired, learned, at_ms=at_ms)


def _correct_reward(model: Model, event: RewardAmended) -> Model:
    """Amend a reward that was learned since the last refit; note one that is folded by now, and leave it."""
    tally, state = model.tally, model.state
    if event.before is not None:
        return _correct_aside(model, event)
    if not can_correct(state, event.recommendation_id):
        return replace(model, tally=replace(tally, missed_corrections=tally.missed_corrections + 1))
    outcomes = _outcomes(model, event.item_values)
    corrected = correct(state, event.recommendation_id, event.value, outcomes=outcomes)
    tally = replace(
        tally,
        voided=tally.voided + (event.value is None),
        amended=tally.amended + (event.value is not None),
    )
    return replace(model, state=corrected, tally=tally)


def _revise_reward(model: Model, event: RewardRevised, logged: LoggedEvent) -> Model:
    """Learn a slate's provisional reward, or how it has changed; note a change of what is not known any more."""
    learns = model.settings.stage.learns
    has_places, tally = learns and model.items.have_places(event.shown.slate), model.tally
    defaults = event.is_default - event.was_default
    tally = replace(tally, expirations=tally.expirations + defaults, defaults=tally.defaults + defaults)
    if event.before is None:
        return _begin_provisional(_check_open(model, logged), event, tally, at_ms=logged.at_ms)
    state = _revised_state(model, event, event.before) if has_places else None
    if state is None:
        # Rewards of a kind that comes late are wild until enough of them were heard of.
        value = event.value if learns else None
        heard = model.state if value is None or value == event.before else hear(model.state, value)
        return replace(model, state=heard, tally=replace(tally, missed_corrections=tally.missed_corrections + 1))
    return replace(model, state=state, tally=replace(tally, voided=tally.voided + (event.value is None)))


def _begin_provisional(model: Model, event: RewardRevised, tally: Tally, *, at_ms: int) -> Model:
    """Learn a slate's reward so far for the first time, or only count it if its items have lost their places."""
    if event.value is None:
        raise CorruptDataError(f"the log takes back a reward of {event.recommendation_id!r} that was never learned")
    if model.items.have_places(event.shown.slate):
        model = replace(model, tally=tally)
        learned = _Learned(event.recommendation_id, event.value, event.item_values, event.shown)
        return _learn_reward(model, learned, at_ms=at_ms)
    unlearned = replace(tally, unlearned=tally.unlearned + 1)
    return replace(model, state=model.state.closed(event.recommendation_id), tally=unlearned)


def _revised_state(model: Model, event: RewardRevised, before: float) -> State | None:
    """Return the state that learned another reward of a slate, or other values of its items; None if it can't."""
    state, shown, outcomes = model.state, event.shown, _outcomes(model, event.item_values)
    if can_correct(state, event.recommendation_id):
        return correct(state, event.recommendation_id, event.value, outcomes=outcomes)
    if (event.value, event.item_values) == (before, event.item_values_before):
        return state
    return revise(
        state,
        event.recommendation_id,
        model.encode(shown.context),
        model.items.find_indices(shown.slate),
        before=before,
        reward=event.value,
        at=event.learned_ms,
        before_outcomes=_outcomes(model, event.item_values_before),
        outcomes=outcomes,
    )


def _correct_aside(model: Model, event: RewardAmended) -> Model:
    """Count another reward, or none, of a slate that was not learned from."""
    tally, is_void = model.tally, event.value is None
    if not tally.aside_rewards:  # the event that has the reward was passed over
        return replace(model, tally=replace(tally, missed_corrections=tally.missed_corrections + 1))
    change = _usual_reward(model, event.value) - _usual_reward(model, event.before)
    corrected = replace(
        tally,
        aside_sum=tally.aside_sum + change,
        voided=tally.voided + is_void,
        amended=tally.amended + (not is_void),
        aside_rewards=tally.aside_rewards - is_void,
    )
    return replace(model, tally=corrected)


class _Learned(NamedTuple):
    """What is learned of a slate that was shown."""

    recommendation_id: str
    reward: float
    item_values: ItemValues | None
    shown: Shown


def _learn_reward(model: Model, learned: _Learned, *, at_ms: int) -> Model:
    shown, outcomes = learned.shown, _outcomes(model, learned.item_values)
    context, ranking = model.encode(shown.context), model.items.find_indices(shown.slate)
    state = model.state.rewarded(
        learned.recommendation_id, context, ranking, reward=learned.reward, at=at_ms, outcomes=outcomes
    )
    return replace(model, state=state, items=model.items.learn(ranking))


def _outcomes(model: Model, values: ItemValues | None) -> NDArray[np.float64] | None:
    """Return what each item of a slate did, NaN for unknown, shape (k,); None where nothing is known of any."""
    if values is None:
        return None
    if len(values) != model.settings.slate_size:
        raise CorruptDataError(f"the log has values of {len(values)} items of a slate of {model.settings.slate_size}")
    return np.array([math.nan if value is None else value for value in values])


def _outcomes_of_all(model: Model, slates: Sequence[PastSlate]) -> NDArray[np.float64] | None:
    """Return the outcomes of the items of slates, shape (B, k); None where nothing is known of any."""
    known = [_outcomes(model, slate.item_values) for slate in slates]
    if all(one is None for one in known):
        return None
    return np.array([np.full(model.settings.slate_size, math.nan) if one is None else one for one in known])


def _learn_history(model: Model, slates: Sequence[PastSlate], *, at_ms: int) -> Model:
    """Learn from slates that were shown elsewhere; all of their features are seen before one is encoded."""
    if model.skipped:
        slates = [slate for slate in slates if model.items.have_places(slate.slate)]
    if not slates:
        return model
    if model.encoder is not None:
        named = [slate.context for slate in slates if isinstance(slate.context, Features)]
        model = _recode(model, model.encoder.observe_all(named))
    past = PastRows(
        np.array([model.encode(slate.context) for slate in slates]),
        model.items.find_indices([item for slate in slates for item in slate.slate]).reshape(len(slates), -1),
        np.array([slate.reward for slate in slates]),
        np.array([0 if slate.at_ms is None else max(at_ms - slate.at_ms, 0) for slate in slates], dtype=np.float64),
        _outcomes_of_all(model, slates),
    )
    state, items = model.state.learn_history(past, at=at_ms), model.items.learn(past.rankings)
    return replace(model, state=state, items=items)
