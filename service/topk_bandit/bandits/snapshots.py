"""The bytes of a snapshot: a model at a checkpoint, encoded and decoded.

A snapshot is a .npz archive of plain arrays and a JSON header. `decode_model` returns the encoded model to the bit, or
raises `CorruptDataError`. Nothing is pickled, and nothing here reads or writes a store.
"""

from __future__ import annotations

import io
import json
import math
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from topk_bandit.bandits.comparison import NOTHING_COMPARED, Comparison
from topk_bandit.bandits.digests import Digests, digests_of, resume_arithmetic
from topk_bandit.bandits.exposures import Exposures
from topk_bandit.bandits.history import History
from topk_bandit.bandits.items import Items
from topk_bandit.bandits.model import Model, RegretSums, Tally, UnitlessPhase, half_life_of
from topk_bandit.bandits.priors import PriorItems
from topk_bandit.bandits.reward_curve import RewardCurve
from topk_bandit.domain.errors import CorruptDataError, NewerDataError
from topk_bandit.domain.features import Features
from topk_bandit.learning.calibration import NO_SURPRISES, Calibration
from topk_bandit.learning.encoding import Encoder
from topk_bandit.learning.feature_records import FeatureRecord
from topk_bandit.learning.item_features import ItemFeatures
from topk_bandit.learning.item_feedback import ItemFeedback
from topk_bandit.learning.item_outcomes import ItemOutcomes
from topk_bandit.learning.item_parts import ItemParts
from topk_bandit.learning.kendall import Shape
from topk_bandit.learning.observed_rows import ObservedRows, RowOutcomes
from topk_bandit.learning.policy import Checkpoint, State, kernel_of
from topk_bandit.learning.posterior import PendingSlates
from topk_bandit.learning.prior_mean import PriorMean
from topk_bandit.learning.recent_observations import NO_OBSERVATIONS, Counted, RecentObservations
from topk_bandit.learning.robust_ranges import NO_VALUES, RobustRange
from topk_bandit.learning.slope_prior import SlopePrior
from topk_bandit.store.codec import decode_event, decode_settings, encode_event, encode_settings
from topk_bandit.store.data_versions import FIRST, OLDEST
from topk_bandit.store.documents import refuse_newer
from topk_bandit.store.events import LoggedEvent
from topk_bandit.store.feature_codec import features_document

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.features import FeatureSchema
    from topk_bandit.learning.limits import Limits

__all__ = ["decode_digests", "decode_items", "decode_model", "encode_model"]


def encode_model(model: Model, version: int = OLDEST) -> bytes:
    """Return a model at a checkpoint as bytes, in the layout of a data version."""
    checkpoint = model.state.checkpoint
    prior_mean = model.state.study_mean
    items, buffer, parts = model.item_features, io.BytesIO(), checkpoint.observed_rows.parts
    np.savez_compressed(
        buffer,
        header=np.frombuffer(json.dumps(_make_header(model, checkpoint, version)).encode(), dtype=np.uint8),
        contexts=checkpoint.observed_rows.contexts,
        rankings=checkpoint.observed_rows.rankings,
        targets=checkpoint.observed_rows.targets,
        leftovers=checkpoint.observed_rows.leftovers,
        noise_shape=_take_lower_half(checkpoint.observed_rows.noise_shape),
        prior_constants=np.zeros(0) if prior_mean is None else prior_mean.constants,
        prior_slopes=np.zeros((0, 0)) if prior_mean is None else prior_mean.slopes,
        pending_contexts=checkpoint.pending.contexts,
        pending_rankings=checkpoint.pending.rankings,
        open_until_ms=model.items.open_until_ms,
        feature_samples=_join_samples(model.encoder),
        item_features=np.zeros((0, 0)) if items is None else items.encoded,
        item_centre=np.zeros(0) if items is None else items.centre,
        item_samples=_join_samples(None if items is None else items.encoder),
        history_numbers=model.history.numbers,
        history_totals=model.history.totals,
        **_arrays_of_judged(checkpoint),
        **_arrays_since_first(model, version),
        **_arrays_of_feedback(model.state.posterior.prior_mean, checkpoint),
        **({} if parts is None else {f"part_{one.name}": getattr(parts, one.name) for one in fields(parts)}),
    )
    return buffer.getvalue()


def decode_model(payload: bytes, *, limits: Limits) -> Model:
    """Return the model that `encode_model` encoded.

    Raises
    ------
    CorruptDataError
        The bytes are not of a model.
    NewerDataError
        They are of a data version that only a newer program reads.
    """
    with _open_archive(payload) as arrays:
        return _read_model(_read_header(arrays), dict(arrays), limits=limits)


def decode_digests(payload: bytes) -> Digests:
    """Return the digests that a model had where it was encoded.

    Raises
    ------
    CorruptDataError
        As for `decode_model`.
    """
    with _open_archive(payload) as arrays:
        return Digests(**_named(Digests, _read_header(arrays)["digests"]))


def decode_items(payload: bytes) -> tuple[BanditSettings, Items, Encoder | None]:
    """Return the settings, the items and the encoder of a model, without what it learned.

    Raises
    ------
    CorruptDataError
        As for `decode_model`.
    """
    with _open_archive(payload) as arrays:
        header = _read_header(arrays)
        settings = decode_settings(header["settings"].encode())
        encoder = _read_encoder(settings.context_schema, header["features"], arrays["feature_samples"])
        return settings, _read_items(settings, header, arrays), encoder


@contextmanager
def _open_archive(payload: bytes) -> Iterator[Mapping[str, Any]]:
    """Give the arrays of a payload; turn every error while they are read into `CorruptDataError`."""
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
            yield archive
    except (CorruptDataError, NewerDataError):
        raise
    except Exception as error:  # the readers of the archive, its arrays and the header each have errors of their own
        raise CorruptDataError(f"a model can't be read: {error!r}") from error


def _read_header(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    header: Mapping[str, Any] = json.loads(arrays["header"].tobytes())
    refuse_newer(header["v"])
    return header


def _make_header(model: Model, checkpoint: Checkpoint, version: int) -> dict[str, Any]:
    return {
        "v": version,
        "digests": digests_of(model)._asdict(),
        "incarnation": model.incarnation,
        "settings": encode_settings(model.settings, version).decode(),
        "items": model.items.ids,
        "n_places": model.state.posterior.kernel.n_items,
        "available": model.items.available,
        "retired": model.items.retired,
        "prior_items": model.prior_items.ids,
        "items_position": model.items_position,
        "pending_ids": checkpoint.pending_ids,
        "noise_variance": checkpoint.noise_variance,
        "kernel_shape": checkpoint.shape,
        **{name: getattr(checkpoint, name) for name in _PLAIN},
        "usual_rewards": _describe_clamped_rewards(model),
        "usual_contexts": _describe_shortened_contexts(checkpoint.norm_range),
        "judged": {
            "rewards": _describe_range(checkpoint.reward_range),
            "norms": _describe_range(checkpoint.norm_range),
            "recent_ids": checkpoint.recent.ids,
            "settled": checkpoint.settled,
            "calibration": checkpoint.calibration,
            **({} if checkpoint.feedback is None else {"outcomes": _describe_range(checkpoint.feedback.outcome_range)}),
        },
        "features": _describe_records(model.encoder),
        "item_features": _describe_records(None if model.item_features is None else model.item_features.encoder),
        "items_taken": 0 if model.item_features is None else model.item_features.taken,
        "tally": model.tally.as_document(),
        "unit_from": model.unit_from,
        **({"unitless": model.unitless} if model.unitless else {}),
        **(_describe_since_first(model, checkpoint) if version > FIRST else {}),
        "skipped": sorted(model.skipped),
        "history": [model.history.width_ms, model.history.current],
        "last": {
            "position": model.last.position,
            "at_ms": model.last.at_ms,
            "event": encode_event(model.last.event, version).decode(),
        },
    }


_PLAIN = (
    "observations",
    "forgotten",
    "imported",
    "compared",
    "shared",
    "unrewarded",
    "to_count",
    "aged_at",
    "noise_at_edge",
    "doubt",
    "changes",
)
"""Fields of a checkpoint that the header has as they are."""


def _describe_since_first(model: Model, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what the first data version does not have."""
    curve, features = model.reward_curve, model.items.features
    return {
        "begun_at": checkpoint.begun_at,
        "names": checkpoint.recent.names,
        "reward_curve": [curve.sizes, curve.slates, curve.cohorts],
        **({} if model.comparison == NOTHING_COMPARED else {"comparison": _describe_comparison(model.comparison)}),
        **({"exposures": model.exposures.as_document()} if model.exposures.promises else {}),
        **({} if features is None else {"features_of_items": _describe_features(features)}),
    }


def _describe_comparison(comparison: Comparison) -> dict[str, Any]:
    return comparison.as_document() | comparison.days_document()


def _describe_features(features: Mapping[str, Features]) -> dict[str, Any]:
    return {item_id: features_document(one) for item_id, one in sorted(features.items())}


def _read_model(header: Mapping[str, Any], arrays: Mapping[str, Any], *, limits: Limits) -> Model:
    settings = decode_settings(header["settings"].encode())
    last = header["last"]
    items = _read_items(settings, header, arrays)
    checkpoint = _read_checkpoint(header, arrays)
    kernel = kernel_of(settings.kernel, header["n_places"], settings.slate_size)
    kernel = kernel if checkpoint.shape is None else kernel.with_shape(checkpoint.shape)
    item_features = _read_item_features(settings, header, arrays)
    if item_features is not None:
        kernel = kernel.with_item_features(item_features.rows)
    prior_items = PriorItems.of(header["prior_items"])
    prior_mean = None
    if settings.prior_digest:
        rows = prior_items.find_rows(items, n_items=kernel.n_items)
        prior_mean = PriorMean.restore(kernel, arrays["prior_constants"], arrays["prior_slopes"], rows)
    if checkpoint.feedback is not None:
        checkpoint = replace(checkpoint, feedback=replace(checkpoint.feedback, study=prior_mean))
    if "utility_constants" in arrays:
        utilities = {name: arrays[f"utility_{name}"] for name in _OF_UTILITIES if f"utility_{name}" in arrays}
        if "worth" in utilities:
            mean, variance = utilities["worth"].tolist()
            utilities["worth"] = SlopePrior(mean, variance, in_rewards=True)
        prior_mean = PriorMean.restore(kernel, **utilities)
    state = State.restore(
        kernel,
        checkpoint,
        limits=limits,
        prior_mean=prior_mean,
        half_life=half_life_of(settings),
        trusts_rewards=settings.trusts_rewards,
        leaving=items.retired_places,
    )
    return Model(
        incarnation=header["incarnation"],
        settings=settings,
        items=items,
        prior_items=prior_items,
        state=state,
        tally=Tally(**_named(Tally, header["tally"], optional=_OF_SET_ASIDE)),
        last=LoggedEvent(last["position"], last["at_ms"], decode_event(last["event"].encode())),
        arithmetic=resume_arithmetic(header["digests"]["arithmetic"], position=last["position"]),
        encoder=_read_encoder(settings.context_schema, header["features"], arrays["feature_samples"]),
        item_features=item_features,
        items_position=header["items_position"],
        history=_read_history(header, arrays),
        reward_curve=RewardCurve.restore(*_first(RewardCurve, header.get("reward_curve", ()))),
        comparison=Comparison.from_document(header["comparison"]) if "comparison" in header else NOTHING_COMPARED,
        exposures=Exposures.from_document(header.get("exposures", ()), settings),
        skipped=frozenset(header["skipped"]),
        unit_from=header.get("unit_from", int(state.posterior.rewards_vary)),  # older programs do not say since when
        unitless=tuple(UnitlessPhase(*(RegretSums(*sums) for sums in one)) for one in header.get("unitless", ())),
    )


def _read_items(settings: BanditSettings, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Items:
    described = header.get("features_of_items", {} if settings.item_schema is None else None)
    return Items.of(
        header["items"],
        available=header["available"],
        retired=header["retired"],
        open_until_ms=arrays["open_until_ms"],
        learned_counts=_read_learned_counts(len(header["items"]), arrays),
        features=None if described is None else {name: _read_features(one) for name, one in described.items()},
    )


def _read_learned_counts(n_items: int, arrays: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return how many learned slates have shown each item; the first data version only has the rows that are left."""
    if "learned_counts" in arrays:
        return np.array(arrays["learned_counts"], dtype=np.int64)
    counts = np.bincount(arrays["rankings"].reshape(-1), minlength=n_items)
    return np.asarray(counts[:n_items], dtype=np.int64)


def _read_features(described: Mapping[str, Any]) -> Features:
    """Return the features that `features_document` described: JSON has lists for label sets."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in described.items()}
    return Features.of({name: float(one) if type(one) is int else one for name, one in values.items()})


def _read_history(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> History:
    width_ms, current = header["history"][:2]
    return History(width_ms, current, arrays["history_numbers"], arrays["history_totals"])


def _read_checkpoint(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Checkpoint:
    return Checkpoint(
        observed_rows=ObservedRows(
            arrays["contexts"],
            arrays["rankings"],
            arrays["targets"],
            arrays["leftovers"],
            _mirror_half(arrays["noise_shape"], len(arrays["rankings"])),
            _read_parts(arrays),
            RowOutcomes(arrays["row_outcomes"], arrays["row_own"]) if "row_outcomes" in arrays else None,
        ),
        pending=PendingSlates(arrays["pending_contexts"], arrays["pending_rankings"]),
        pending_ids=tuple(header["pending_ids"]),
        noise_variance=header["noise_variance"],
        shape=None if header["kernel_shape"] is None else Shape(*_first(Shape, header["kernel_shape"])),
        **{name: header[name] for name in _PLAIN},
        **_read_judged(header, arrays),
        begun_at=header.get("begun_at", 0.0),
        feedback=_read_feedback(header, arrays),
    )


def _read_parts(arrays: Mapping[str, Any]) -> ItemParts | None:
    if "part_items" not in arrays:
        return None
    return ItemParts(**{one.name: arrays[f"part_{one.name}"] for one in fields(ItemParts)})


def _describe_records(encoder: Encoder | None) -> list[dict[str, Any]]:
    """Return what was seen of each feature, its sample as the number of values in it."""
    records = () if encoder is None else encoder.records
    return [{**record._asdict(), "limit": _finite(record.limit), "sample": len(record.sample)} for record in records]


def _finite(limit: float) -> float | None:
    return limit if math.isfinite(limit) else None


def _join_samples(encoder: Encoder | None) -> NDArray[np.float64]:
    return np.zeros(0) if encoder is None else np.concatenate([record.sample for record in encoder.records])


def _read_encoder(
    schema: FeatureSchema | None, described: Sequence[Mapping[str, Any]], samples: NDArray[np.float64]
) -> Encoder | None:
    if schema is None:
        return None
    parts = np.split(samples, np.cumsum([one["sample"] for one in described]))
    records = [
        FeatureRecord(
            **_named(FeatureRecord, one)
            | {"limit": math.inf if one["limit"] is None else one["limit"], "sample": sample}
        )
        for one, sample in zip(described, parts[:-1], strict=True)
    ]
    return Encoder(schema, tuple(records))


def _read_item_features(
    settings: BanditSettings, header: Mapping[str, Any], arrays: Mapping[str, Any]
) -> ItemFeatures | None:
    encoder = _read_encoder(settings.item_schema, header["item_features"], arrays["item_samples"])
    if encoder is None:
        return None
    return ItemFeatures(encoder, arrays["item_features"], arrays["item_centre"], header["items_taken"])


def _describe_range(known: RobustRange | None) -> Mapping[str, Any] | None:
    """Return a robust range without its values, which are an array."""
    if known is None:
        return None
    described = {one.name: getattr(known, one.name) for one in fields(known) if one.name not in _RANGE_ARRAYS}
    return described | {"farthest": _finite(known.farthest)}


def _read_range(described: Mapping[str, Any] | None, name: str, arrays: Mapping[str, Any]) -> RobustRange | None:
    if described is None:
        return None
    farthest = math.inf if described["farthest"] is None else described["farthest"]
    read = {array: arrays[key] for array in _RANGE_ARRAYS if (key := f"{name}_{array}") in arrays}
    read.setdefault("gaps", np.zeros(len(read["values"])))  # the version before has none
    known = _named(RobustRange, described, optional=(*_RANGE_ARRAYS, "gap"))
    return RobustRange(**known | {"farthest": farthest, **read})


def _arrays_of_judged(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the arrays by which values are judged."""
    ranges = {"usual_rewards": checkpoint.reward_range, "usual_norms": checkpoint.norm_range or NO_VALUES}
    arrays = {f"{name}_{array}": getattr(one, array) for name, one in ranges.items() for array in _RANGE_ARRAYS}
    return arrays | {f"recent_{name}": getattr(checkpoint.recent, name) for name in _OF_RECENT}


def _arrays_since_first(model: Model, version: int) -> dict[str, Any]:
    """Return the arrays that the first data version does not have."""
    return {"learned_counts": model.items.learned_counts} if version > FIRST else {}


def _arrays_of_feedback(prior_mean: PriorMean | None, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the arrays of what became of single items; none where no reward names any."""
    feedback, of_rows = checkpoint.feedback, checkpoint.observed_rows.feedback
    if feedback is None:
        return {}
    arrays = {f"outcome_{one.name}": getattr(feedback.settled, one.name) for one in fields(ItemOutcomes)}
    arrays |= {f"usual_outcomes_{array}": getattr(feedback.outcome_range, array) for array in _RANGE_ARRAYS}
    if of_rows is not None:
        arrays |= {"row_outcomes": of_rows.outcomes, "row_own": of_rows.own}
    if checkpoint.recent.outcomes is not None:
        arrays["recent_outcomes"] = checkpoint.recent.outcomes
    if prior_mean is not None and prior_mean is not feedback.study:
        utilities = {f"utility_{name}": getattr(prior_mean, name) for name in _OF_UTILITIES if name != "worth"}
        arrays |= {name: array for name, array in utilities.items() if array is not None}
        if prior_mean.worth is not None:
            arrays["utility_worth"] = np.array(prior_mean.worth[:2])
    return arrays


def _read_feedback(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> ItemFeedback | None:
    """Return what became of single items, without the study's prior mean."""
    if "outcome_items" not in arrays:
        return None
    settled = ItemOutcomes(**{one.name: arrays[f"outcome_{one.name}"] for one in fields(ItemOutcomes)})
    known = _read_range(header["judged"]["outcomes"], "usual_outcomes", arrays) or NO_VALUES
    return ItemFeedback(settled, known, known, arrays["contexts"].shape[1], None)


_OF_UTILITIES = ("constants", "slopes", "row_of", "covariances", "worth")

_RANGE_ARRAYS = ("values", "told", "gaps")

_OF_SET_ASIDE = [one.name for one in fields(Tally) if "aside" in one.name]

_OF_RECENT = [one.name for one in fields(RecentObservations) if one.name not in {"ids", "names", "outcomes"}]


def _read_judged(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a checkpoint by which values are judged; nothing is known where another program wrote it."""
    judged = header.get("judged")
    if judged is None:
        return {
            "reward_range": NO_VALUES,
            "norm_range": None if header["usual_contexts"] is None else NO_VALUES,
            "recent": NO_OBSERVATIONS,
            "calibration": NO_SURPRISES,
            "settled": Counted(header["tally"]["reward_sum"]),
        }
    recent = {name: arrays[f"recent_{name}"] for name in _OF_RECENT}
    return {
        "reward_range": _read_range(judged["rewards"], "usual_rewards", arrays),
        "norm_range": _read_range(judged["norms"], "usual_norms", arrays),
        "recent": RecentObservations(
            tuple(judged["recent_ids"]),
            **recent,
            names=tuple(header.get("names", judged["recent_ids"])),
            outcomes=arrays.get("recent_outcomes"),
        ),
        "settled": Counted(*_first(Counted, judged["settled"])),
        "calibration": Calibration(*_first(Calibration, judged["calibration"])),
    }


def _named(kind: Any, described: Mapping[str, Any], *, optional: Collection[str] = ()) -> dict[str, Any]:  # noqa: ANN401
    """Return what a type has of what is described: the rest is of another program's, and goes with its snapshot."""
    return {name: described[name] for name in kind.__match_args__ if name in described or name not in optional}


def _first(kind: Any, values: Sequence[Any]) -> Sequence[Any]:  # noqa: ANN401
    """Return as many of some values as a type has, for the same reason."""
    return values[: len(kind.__match_args__)]


def _describe_clamped_rewards(model: Model) -> tuple[int, float, float, int]:
    """Return what the program before goes on from: count, mean, the farthest expected value, the number clamped."""
    counted, known = model.state.counted, model.state.reward_range
    farthest = known.reach / _REACH_OF_BEFORE if math.isfinite(known.reach) else 0.0
    return model.state.observations, model.mean_reward, farthest, counted.wild_rewards


def _describe_shortened_contexts(norms: RobustRange | None) -> tuple[tuple[float, ...], float, int] | None:
    """Return the same of contexts: the first norms, the longest expected one, and how many were shortened."""
    if norms is None:
        return None
    if not math.isfinite(norms.reach):
        return tuple(norms.values.tolist()), norms.middle, norms.outliers
    return (), norms.reach / _REACH_OF_BEFORE, norms.outliers


_REACH_OF_BEFORE = 10.0
"""A value so many times as far as the farthest expected one is an outlier to the program before."""


def _take_lower_half(matrix: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the lower half of a symmetric matrix, an empty one for None."""
    return np.zeros(0) if matrix is None else matrix[np.tril_indices(len(matrix))]


def _mirror_half(half: NDArray[np.float64], size: int) -> NDArray[np.float64] | None:
    if not len(half):
        return None
    matrix = np.zeros((size, size))
    matrix[np.tril_indices(size)] = half
    return matrix + np.tril(matrix, -1).T
