"""What the columns of a row mean: an observation for a bandit with this schema. Errors name the column."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from topk_bandit.client.imports import PastObservation
from topk_bandit.commands.imports.cells import Cells, columns_named, is_missing
from topk_bandit.domain.features import Boolean, Categorical, LabelSet, Numeric, Vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.features import FeatureKind, FeatureSchema

__all__ = ["Columns"]

_FLAGS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(Cells):
    """Where a row has what.

    Attributes
    ----------
    schema
        Of the bandit's contexts; None for contexts of numbers.
    slate_size, context_dimension
        Of the bandit.
    """

    schema: FeatureSchema | None
    slate_size: int
    context_dimension: int

    @classmethod
    def of(
        cls, told: Sequence[str], *, schema: FeatureSchema | None, slate_size: int, context_dimension: int
    ) -> Columns:
        """Return what texts such as ``reward=margin`` say."""
        return cls(named=columns_named(told), schema=schema, slate_size=slate_size, context_dimension=context_dimension)

    def passed_over(self, values: Mapping[str, Any]) -> list[str]:
        """Return the columns of a row that mean nothing."""
        known = {"items", "reward", "time", "propensity", "context", "features"}
        known |= {f"item_{place}" for place in range(1, self.slate_size + 1)}
        known |= {f"context_{place}" for place in range(1, self.context_dimension + 1)}
        known |= {f"{prefix}{feature.name}" for feature in self.schema or () for prefix in ("", "features.")}
        return self.others(values, known)

    def read(self, values: Mapping[str, Any]) -> PastObservation:
        """Return the observation in a row, or raise `InvalidArgumentError` naming the column."""
        reward, propensity = self.get(values, "reward"), self.get(values, "propensity")
        if is_missing(reward):
            raise self.error("reward", "is missing")
        time = self.get(values, "time")
        return PastObservation(
            items=tuple(self.text("items", item) for item in self.parts(values, "items", "item", self.slate_size)),
            reward=self.number("reward", reward),
            context=() if self.schema is not None else self._context(values),
            features=None if self.schema is None else self._features(values, self.schema),
            time=None if is_missing(time) else self._time(time),
            propensity=None if is_missing(propensity) else self.number("propensity", propensity),
        )

    def _context(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        numbers = self.parts(values, "context", "context", self.context_dimension)
        return tuple(self.number("context", number) for number in numbers)

    def _features(self, values: Mapping[str, Any], schema: FeatureSchema) -> dict[str, Any]:
        nested = self.get(values, "features")
        if nested is not None and not isinstance(nested, dict):
            raise self.error("features", f"expected an object, got {nested!r:.60}")
        found = {name: value for name, value in (nested or {}).items() if not is_missing(value)}
        for feature in schema:
            told = (self.get(values, f"{prefix}{feature.name}") for prefix in ("features.", ""))
            value = next((one for one in told if not is_missing(one)), found.get(feature.name))
            if value is not None:
                found[feature.name] = self._feature(feature.name, feature.kind, value)
        return found

    def _feature(self, name: str, kind: FeatureKind, value: Any) -> Any:  # noqa: ANN401, whatever a file has
        match kind:
            case Numeric():
                return self.number(name, value)
            case Boolean():
                return self._flag(name, value)
            case LabelSet():
                return {self.text(name, label) for label in self.split(name, value)}
            case Categorical():
                return self.text(name, value)
            case Vector():
                return tuple(self.number(name, number) for number in self.split(name, value))

    def _flag(self, name: str, value: object) -> bool:
        flag = _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise self.error(name, f"expected true or false, got {value!r:.60}")
        return flag

    def _time(self, value: Any) -> datetime:  # noqa: ANN401, whatever a file has
        try:
            time = _parse(value)
            return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        except (TypeError, ValueError, OverflowError, OSError):
            problem = f"expected a time such as 2026-01-31T12:00:00Z, or seconds since 1970, got {value!r:.60}"
            raise self.error("time", problem) from None


def _parse(value: Any) -> datetime:  # noqa: ANN401, whatever a file has
    match value:
        case datetime():
            return value
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case bool():
            raise TypeError
    try:
        return datetime.fromtimestamp(float(value), UTC)
    except (TypeError, ValueError):
        return datetime.fromisoformat(value)
