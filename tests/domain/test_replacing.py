"""Values with some fields changed are what `dataclasses` makes of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest

from topk_bandit.domain.replacing import replace


@dataclass(frozen=True, slots=True)
class Base:
    """A value."""

    first: int
    second: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Derived(Base):
    """One that has more fields, one of which follows from the others."""

    third: float = 0.5
    doubled: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2.0 * self.third)


@pytest.mark.parametrize("changes", [{}, {"first": 2}, {"second": ("a",), "third": 0.25}])
def test_it_is_what_dataclasses_make_of_it(changes: dict[str, object]) -> None:
    value = Derived(1, ("b",), 0.75)
    assert replace(value, **changes) == dataclasses.replace(value, **changes)  # type: ignore[arg-type]


def test_the_value_before_stays() -> None:
    value = Base(1, ("a",))
    changed = replace(value, first=2)
    assert (value, changed) == (Base(1, ("a",)), Base(2, ("a",)))
    assert changed.second is value.second


def test_a_field_that_there_is_not_is_refused() -> None:
    with pytest.raises(AttributeError, match="fourth"):
        replace(Base(1), fourth=2)  # type: ignore[call-arg]


def test_it_stays_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        replace(Base(1), first=2).first = 3  # type: ignore[misc]
