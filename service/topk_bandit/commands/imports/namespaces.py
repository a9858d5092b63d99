"""VW's notation of features in JSON as plain values: texts in names, labels as names, and paths through lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import Categorical, LabelSet
from topk_bandit.domain.values import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topk_bandit.domain.features import Feature

__all__ = ["Namespaces", "feature_error", "find_all", "with_texts"]


def feature_error(feature: str, problem: str, *, at: str = "") -> InvalidArgumentError:
    """Return the error about a feature of a row's context, with the name at which it is wrong."""
    return InvalidArgumentError(f"c, {at or feature}", f"{problem}; or pass the feature over: --ignore {feature}")


def find_all(value: object, path: Sequence[str]) -> Iterator[object]:
    """Yield what stands at a path, going through lists; a name may itself have dots."""
    if isinstance(value, list):
        for one in value:
            yield from find_all(one, path)
    elif not path:
        yield value
    elif isinstance(value, dict):
        for end in range(1, len(path) + 1):
            yield from find_all(value.get(".".join(path[:end])), path[end:])


def with_texts(place: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object in which VW's ``"city=Paris": 1`` is the text Paris of city, and several are a list of texts.

    Raises
    ------
    InvalidArgumentError
        A name has a value beside such texts.
    """
    there = {name: value for name, value in values.items() if value is not None}
    found: dict[str, Any] = {name: _inner(place, value) for name, value in there.items() if not _is_text(name, value)}
    texts: dict[str, list[str]] = {}
    for name, value in there.items():
        if _is_text(name, value):
            feature, _, text = name.partition("=")
            texts.setdefault(feature, []).append(text)
    for feature, several in texts.items():
        if feature in found:
            problem = f"is there twice, as {shorten(found[feature])} and as {shorten(several)}: leave one of them out"
            raise InvalidArgumentError(f"{place}, {feature}", problem)
        found[feature] = several[0] if len(several) == 1 else several
    return found


def _is_text(name: str, value: object) -> bool:
    feature, equals, _ = name.partition("=")
    return bool(equals and feature) and value == 1


def _inner(place: str, value: Any) -> Any:  # noqa: ANN401, whatever a log has
    if isinstance(value, dict):
        return with_texts(place, value)
    return [_inner(place, one) for one in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Reads namespaces that stand where a schema has a feature: their names are its labels, or its text."""

    features: Sequence[Feature]

    def read(self, values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
        """Return an object at a path, in which such a namespace is a list of its names, or the only one.

        Raises
        ------
        InvalidArgumentError
            The names of a namespace have weights of their own, or the feature is no text.
        """
        found = dict[str, Any]()
        for name, value in values.items():
            below, several = f"{path}{name}", _objects_in(value)
            if self._is_text(path, name, value):
                continue
            if not several:
                found[name] = value
            elif (feature := self._find(below)) is not None:
                found[name] = _names_in(feature, several, value)
            else:
                found[name] = [self.read(one, f"{below}.") for one in several]
        return found

    def _find(self, path: str) -> Feature | None:
        """Return the feature of a path, unless the schema has others below it."""
        if any(feature.name.startswith(f"{path}.") for feature in self.features):
            return None
        return next((feature for feature in self.features if feature.name == path), None)

    def _is_text(self, path: str, name: str, value: object) -> bool:
        """Return whether a name has a text of a feature, which is not there: its weight is 0."""
        feature, equals, _ = name.partition("=")
        if not equals or self._find(f"{path}{feature}") is None:
            return False
        if value != 0:
            raise feature_error(f"{path}{feature}", f"expected a 1 beside {shorten(name)}, got {shorten(value)}")
        return True


def _objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects that a value is or lists; none for any other value."""
    several = [value] if isinstance(value, dict) else value
    there = [one for one in several if one is not None] if isinstance(several, list) else []
    return there if all(isinstance(one, dict) for one in there) else []


def _names_in(feature: Feature, objects: Sequence[dict[str, Any]], value: object) -> list[str] | str:
    """Return the names of weight 1 in a namespace; one of weight 0 is not there."""
    if not isinstance(feature.kind, Categorical):
        raise feature_error(feature.name, f"expected a value, got an object: {shorten(value)}")
    pairs = [pair for one in objects for pair in one.items()]
    if not all(isinstance(weight, bool | int | float) and weight in {0, 1} for _, weight in pairs):
        raise feature_error(
            feature.name, f"expected a 1 beside each label, got {shorten(value)}: write a list of texts"
        )
    names = [name for name, weight in pairs if weight]
    return names[0] if len(names) == 1 and not isinstance(feature.kind, LabelSet) else names
