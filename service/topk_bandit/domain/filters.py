"""Conditions on the features of items, as a language: ``price < 20 and not (category in ["wine", "beer"])``.

::

    condition   any of    "or" between, "and" before "or", "not" before both, ( )
    test        NAME < NUMBER                  also <=, >, >=; of a numeric feature
                NAME == VALUE                  also !=; of a numeric, boolean or categorical feature
                NAME in [VALUE, ...]           of a numeric or categorical feature
                NAME has TEXT                  of a label set
    VALUE       a number, true, false, or a text in " or ', with a backslash before those and before itself
    NAME        a feature's; between backticks where it is a word of the language or begins with none of a-z, A-Z, _

A test of a feature that an item lacks is false, and so ``!=`` is, too; ``not`` before a test is true then.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import (
    MAX_FEATURE_MAGNITUDE,
    MAX_FEATURE_TEXT,
    Boolean,
    Categorical,
    FeatureKind,
    LabelSet,
    Numeric,
    Vector,
)
from topk_bandit.domain.nearest import find_nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from topk_bandit.domain.features import Features, FeatureSchema, FeatureValue

__all__ = [
    "MAX_FILTER_DEPTH",
    "MAX_FILTER_LENGTH",
    "All",
    "Any",
    "Compared",
    "Condition",
    "Has",
    "Not",
    "Within",
    "accepts",
    "condition_of",
    "parse_filter",
    "write_filter",
]

MAX_FILTER_LENGTH = 4096
"""How many characters a filter may have; so it has fewer tests than that, too."""

MAX_FILTER_DEPTH = 32
"""How many of ``(`` and ``not`` may stand in each other."""

Comparison: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]
Scalar: TypeAlias = float | bool | str


@dataclass(frozen=True, slots=True)
class Compared:
    """A feature's value beside one that is given."""

    name: str
    comparison: Comparison
    value: Scalar


@dataclass(frozen=True, slots=True)
class Within:
    """A feature's value is one of several."""

    name: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Has:
    """A label set has a label."""

    name: str
    label: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    of: Condition


@dataclass(frozen=True, slots=True)
class All:
    """Each of two or more conditions."""

    of: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """At least one of two or more conditions."""

    of: tuple[Condition, ...]


Condition: TypeAlias = Compared | Within | Has | Not | All | Any

_COMPARE: Mapping[str, Callable[[FeatureValue, FeatureValue], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def accepts(condition: Condition, features: Features) -> bool:
    """Return whether features meet a condition that was parsed by their schema."""
    return _meets(condition, dict(features.values))


def _meets(condition: Condition, values: Mapping[str, FeatureValue]) -> bool:
    match condition:
        case Compared(name, comparison, value):
            return name in values and _COMPARE[comparison](values[name], value)
        case Within(name, among):
            return name in values and values[name] in among
        case Has(name, label):
            labels = values.get(name)
            return isinstance(labels, tuple) and label in labels
        case Not(of):
            return not _meets(of, values)
        case All(several):
            return all(_meets(one, values) for one in several)
        case Any(several):
            return any(_meets(one, values) for one in several)


_WORDS = frozenset({"and", "or", "not", "in", "has", "true", "false"})
_BARE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9._-]*")


def write_filter(condition: Condition) -> str:
    """Return the text of a condition, which parses as the same condition."""
    match condition:
        case Compared(name, comparison, value):
            return f"{_write_name(name)} {comparison} {_write_value(value)}"
        case Within(name, values):
            return f"{_write_name(name)} in [{', '.join(map(_write_value, values))}]"
        case Has(name, label):
            return f"{_write_name(name)} has {_write_value(label)}"
        case Not(of):
            return f"not {_write_part(of)}"
        case All(several):
            return " and ".join(map(_write_part, several))
        case Any(several):
            return " or ".join(map(_write_part, several))


def _write_part(condition: Condition) -> str:
    text = write_filter(condition)
    return f"({text})" if isinstance(condition, All | Any) else text


def _write_name(name: str) -> str:
    return name if _BARE_NAME.fullmatch(name) and name not in _WORDS else f"`{name}`"


def _write_value(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)


def parse_filter(text: str, schema: FeatureSchema | None, *, field: str = "filter") -> Condition:
    """Return the condition that a text states.

    Parameters
    ----------
    schema
        The features of items: each test has to be one of the feature's kind. None asks for no kinds: for a text that
        was parsed with a schema before, and states the same condition without one.
    field
        The name that an error gives to the text.

    Raises
    ------
    InvalidArgumentError
        The text is none, is too long or too deep, names no feature, or tests one by what its kind does not have. The
        error says at which character, from 1, and the nearest name.
    """
    if len(text) > MAX_FILTER_LENGTH:
        raise InvalidArgumentError(field, f"has {len(text)} characters, more than {MAX_FILTER_LENGTH}")
    kinds = None if schema is None else {feature.name: feature.kind for feature in schema}
    return _Parser(text, kinds, field).parse()


@lru_cache(maxsize=64)  # a shop sends few filters, again and again
def condition_of(text: str) -> Condition:
    """Return the condition of a text that was parsed before."""
    return parse_filter(text, None)


@dataclass(frozen=True, slots=True)
class _Token:
    """A piece of the text: its kind, `"end"` after the last one; what it stands for; its first character, from 1."""

    kind: str
    value: Scalar
    at: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else f"{self.value!r}"


_TOKEN = re.compile(
    r"""\s*(?:
        (?P<name>[A-Za-z_][A-Za-z0-9._-]*) | `(?P<quoted>[A-Za-z0-9._-]+)`
      | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_.])
      | (?P<text>"(?:[^"\\]|\\["'\\])*" | '(?:[^'\\]|\\["'\\])*')
      | (?P<sign><=|>=|==|!=|<|>|\(|\)|\[|\]|,)
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")
_INSTEAD = {"=": "==", "&": "and", "|": "or", "!": "not", "{": "[", "}": "]"}
_CLOSED = '"', "'", "`"


class _Parser:
    """One text being read, from the left to the right."""

    def __init__(self, text: str, kinds: Mapping[str, FeatureKind] | None, field: str) -> None:
        self._kinds, self._field = kinds, field
        self._tokens = tuple(self._split(text))
        self._next = 0
        self._depth = 0

    def parse(self) -> Condition:
        condition = self._any()
        if self._token.kind != "end":
            self._fail(f"got {self._token.shown} where 'and', 'or' or the end is due")
        return condition

    def _split(self, text: str) -> Iterator[_Token]:
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None:
                self._fail_to_read(text, place)
            kind = str(found.lastgroup)
            value: Scalar = found[kind]
            at, place = found.start(kind) + 1, found.end()
            if kind == "name" and value in _WORDS:
                kind, value = (str(value), str(value)) if value not in ("true", "false") else ("flag", value == "true")
            elif kind == "number":
                value = float(value)
                if not abs(value) <= MAX_FEATURE_MAGNITUDE:
                    self._fail(f"{found[kind]} is beyond {MAX_FEATURE_MAGNITUDE:g}", at)
            elif kind == "text":
                value = _ESCAPE.sub(r"\1", found[kind][1:-1])
                if len(value) > MAX_FEATURE_TEXT:
                    self._fail(f"a text has {len(value)} characters, more than {MAX_FEATURE_TEXT}", at)
            elif kind == "sign":
                kind = found[kind]
            yield _Token("name" if kind == "quoted" else kind, value, at)
        yield _Token("end", "", len(text) + 1)

    def _fail_to_read(self, text: str, place: int) -> NoReturn:
        at = place + len(text[place:]) - len(text[place:].lstrip())
        sign = text[at]
        if sign in _CLOSED:
            self._fail(f"what {sign} opens is no text or name, or is not closed", at + 1)
        self._fail(f"got {sign!r}" + (f", write {_INSTEAD[sign]!r}" if sign in _INSTEAD else ""), at + 1)

    def _fail(self, problem: str, at: int | None = None) -> NoReturn:
        raise InvalidArgumentError(self._field, f"at character {at or self._token.at}: {problem}")

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *kinds: str) -> _Token | None:
        token = self._token
        if token.kind not in kinds:
            return None
        self._next += 1
        return token

    def _due(self, due: str, *kinds: str) -> _Token:
        token = self._take(*kinds)
        if token is None:
            self._fail(f"got {self._token.shown} where {due} is due")
        return token

    def _any(self) -> Condition:
        several = [self._all()]
        while self._take("or"):
            several.append(self._all())
        return several[0] if len(several) == 1 else Any(tuple(several))

    def _all(self) -> Condition:
        several = [self._part()]
        while self._take("and"):
            several.append(self._part())
        return several[0] if len(several) == 1 else All(tuple(several))

    def _part(self) -> Condition:
        opening = self._take("not", "(")
        if opening is None:
            return self._test()
        self._depth += 1
        if self._depth > MAX_FILTER_DEPTH:
            self._fail(f"more than {MAX_FILTER_DEPTH} of '(' and 'not' stand in each other", opening.at)
        condition: Condition
        if opening.kind == "not":
            condition = Not(self._part())
        else:
            condition = self._any()
            self._due("')'", ")")
        self._depth -= 1
        return condition

    def _test(self) -> Condition:
        name = self._due("a feature's name, 'not' or '('", "name")
        feature, kind = str(name.value), self._kind(name)
        how = self._due("<, <=, >, >=, ==, !=, 'in' or 'has'", *_COMPARE, "in", "has")
        if kind is not None:
            self._check_test(name, kind, how)
        match how.kind:
            case "has":
                return Has(feature, str(self._value(feature, kind)))
            case "in":
                return self._within(feature, kind)
            case comparison:
                return Compared(feature, comparison, self._value(feature, kind))  # type: ignore[arg-type]

    def _check_test(self, name: _Token, kind: FeatureKind, how: _Token) -> None:
        feature = name.value
        if how.kind == "has":
            if not isinstance(kind, LabelSet):
                self._fail(f"'has' asks a label set, and {feature} is {_describe(kind)}", how.at)
        elif isinstance(kind, LabelSet):
            self._fail(f"{feature} is a label set: write {feature} has TEXT", how.at)
        elif not isinstance(kind, Numeric | Boolean | Categorical):
            self._fail(f"{feature} is {_describe(kind)}, which no filter asks for", name.at)
        elif how.kind == "in" and isinstance(kind, Boolean):
            self._fail(f"{feature} is true or false: write {feature} == true", how.at)
        elif how.kind not in ("==", "!=", "in") and not isinstance(kind, Numeric):
            self._fail(f"{how.kind} compares numbers, and {feature} is {_describe(kind)}", how.at)

    def _within(self, feature: str, kind: FeatureKind | None) -> Condition:
        self._due("'['", "[")
        values = [self._value(feature, kind)]
        while self._due("',' or ']'", ",", "]").kind == ",":
            values.append(self._value(feature, kind))
        return Within(feature, tuple(values))

    def _kind(self, name: _Token) -> FeatureKind | None:
        if self._kinds is None:
            return None
        kind = self._kinds.get(str(name.value))
        if kind is None:
            near = find_nearest(str(name.value), self._kinds)
            self._fail(
                f"items have no feature {name.value!r}" + (f", the nearest is {near!r}" if near else ""), name.at
            )
        return kind

    def _value(self, feature: str, kind: FeatureKind | None) -> Scalar:
        if kind is None:
            return self._due("a number, true, false or a text in quotes", "number", "flag", "text").value
        wanted, due = _VALUES[type(kind)]
        token = self._take(wanted)
        if token is None:
            hint = (
                f", perhaps {_write_value(str(self._token.value))}"
                if (wanted, self._token.kind) == ("text", "name")
                else ""
            )
            self._fail(f"got {self._token.shown} where {due} is due, as {feature} is {_describe(kind)}{hint}")
        if isinstance(kind, Categorical) and kind.values and token.value not in kind.values:
            near = find_nearest(str(token.value), kind.values)
            self._fail(
                f"{feature} declares no {token.value!r}" + (f", the nearest is {near!r}" if near else ""), token.at
            )
        return token.value


_VALUES: Mapping[type[FeatureKind], tuple[str, str]] = {
    Numeric: ("number", "a number"),
    Boolean: ("flag", "true or false"),
    Categorical: ("text", "a text in quotes"),
    LabelSet: ("text", "a text in quotes"),
}


def _describe(kind: FeatureKind) -> str:
    return _DESCRIPTIONS[type(kind)]


_DESCRIPTIONS: Mapping[type[FeatureKind], str] = {
    Numeric: "numeric",
    Boolean: "boolean",
    Categorical: "categorical",
    LabelSet: "a label set",
    Vector: "a vector",
}
