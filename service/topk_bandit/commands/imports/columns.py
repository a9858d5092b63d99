"""What the columns of a row mean: an observation for a bandit with this schema. Errors name the column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from topk_bandit.client.imports import PastObservation
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Boolean, Categorical, LabelSet, Numeric, Vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.features import FeatureKind, FeatureSchema

__all__ = ["Columns"]

_SEPARATOR = "|"
_FLAGS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a row has what.

    Attributes
    ----------
    schema
        Of the bandit's contexts; None for contexts of numbers.
    slate_size, context_dimension
        Of the bandit.
    named
        The column that has each name, where that is not the name itself.
    """

    schema: FeatureSchema | None
    slate_size: int
    context_dimension: int
    named: Mapping[str, str]

    @classmethod
    def of(
        cls, told: Sequence[str], *, schema: FeatureSchema | None, slate_size: int, context_dimension: int
    ) -> Columns:
        """Return what texts such as ``reward=margin`` say."""
        pairs = [text.partition("=") for text in told]
        for name, _, column in pairs:
            if not (name and column):
                raise InvalidArgumentError("--column", "expected NAME=COLUMN, such as reward=margin")
        return cls(schema, slate_size, context_dimension, {name: column for name, _, column in pairs})

    def passed_over(self, values: Mapping[str, Any]) -> list[str]:
        """Return the columns of a row that mean nothing."""
        known = {"items", "reward", "time", "propensity", "context", "features"}
        known |= {f"item_{place}" for place in range(1, self.slate_size + 1)}
        known |= {f"context_{place}" for place in range(1, self.context_dimension + 1)}
        known |= {f"{prefix}{feature.name}" for feature in self.schema or () for prefix in ("", "features.")}
        columns = {self.named.get(name, name) for name in known}
        return [name for name in values if name not in columns]

    def read(self, values: Mapping[str, Any]) -> PastObservation:
        """Return the observation in a row, or raise `InvalidArgumentError` naming the column."""
        reward, propensity = self._get(values, "reward"), self._get(values, "propensity")
        if _is_missing(reward):
            raise self._error("reward", "is missing")
        time = self._get(values, "time")
        return PastObservation(
            items=tuple(str(item) for item in self._list(values, "items", "item", self.slate_size)),
            reward=self._number("reward", reward),
            context=() if self.schema is not None else self._context(values),
            features=None if self.schema is None else self._features(values, self.schema),
            time=None if _is_missing(time) else self._time(time),
            propensity=None if _is_missing(propensity) else self._number("propensity", propensity),
        )

    def _get(self, values: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401, whatever a file has
        return values.get(self.named.get(name, name))

    def _error(self, name: str, problem: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"column {self.named.get(name, name)!r}", problem)

    def _list(self, values: Mapping[str, Any], name: str, part: str, size: int) -> list[Any]:
        """Return a list in one column, or in several that are numbered."""
        whole = self._get(values, name)
        if _is_missing(whole):
            parts = [self._get(values, f"{part}_{place}") for place in range(1, size + 1)]
            return [one for one in parts if not _is_missing(one)]
        return self._split(name, whole)

    def _split(self, name: str, value: object) -> list[Any]:
        if isinstance(value, str):
            return [part.strip() for part in value.split(_SEPARATOR) if part.strip()]
        if not isinstance(value, list):
            raise self._error(name, f"expected a list, got {value!r:.60}")
        return value

    def _context(self, values: Mapping[str, Any]) -> tuple[float, ...]:
        numbers = self._list(values, "context", "context", self.context_dimension)
        return tuple(self._number("context", number) for number in numbers)

    def _features(self, values: Mapping[str, Any], schema: FeatureSchema) -> dict[str, Any]:
        nested = self._get(values, "features")
        if nested is not None and not isinstance(nested, dict):
            raise self._error("features", f"expected an object, got {nested!r:.60}")
        found = {name: value for name, value in (nested or {}).items() if not _is_missing(value)}
        for feature in schema:
            told = (self._get(values, f"{prefix}{feature.name}") for prefix in ("features.", ""))
            value = next((one for one in told if not _is_missing(one)), found.get(feature.name))
            if value is not None:
                found[feature.name] = self._feature(feature.name, feature.kind, value)
        return found

    def _feature(self, name: str, kind: FeatureKind, value: Any) -> Any:  # noqa: ANN401, whatever a file has
        match kind:
            case Numeric():
                return self._number(name, value)
            case Boolean():
                return self._flag(name, value)
            case LabelSet():
                return {str(label) for label in self._split(name, value)}
            case Categorical():
                return str(value)
            case Vector():
                return tuple(self._number(name, number) for number in self._split(name, value))

    def _number(self, name: str, value: Any) -> float:  # noqa: ANN401, whatever a file has
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self._error(name, f"expected a finite number, got {value!r:.60}")
        return number

    def _flag(self, name: str, value: object) -> bool:
        flag = _FLAGS.get(str(value).strip().lower())
        if flag is None:
            raise self._error(name, f"expected true or false, got {value!r:.60}")
        return flag

    def _time(self, value: Any) -> datetime:  # noqa: ANN401, whatever a file has
        try:
            time = value if isinstance(value, datetime) else _parse(value)
            return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        except (TypeError, ValueError, OverflowError, OSError):
            problem = f"expected a time such as 2026-01-31T12:00:00Z, or seconds since 1970, got {value!r:.60}"
            raise self._error("time", problem) from None


def _parse(value: Any) -> datetime:  # noqa: ANN401, whatever a file has
    try:
        return datetime.fromtimestamp(float(value), UTC)
    except (TypeError, ValueError):
        return datetime.fromisoformat(value)


def _is_missing(value: object) -> bool:
    return value is None or value == ""
