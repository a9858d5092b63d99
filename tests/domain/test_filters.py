"""Filters, against a table by hand and against Python's own evaluation of the equivalent expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.features import (
    NO_FEATURES,
    Boolean,
    Categorical,
    Feature,
    Features,
    FeatureSchema,
    LabelSet,
    Numeric,
    Vector,
)
from topk_bandit.domain.filters import (
    MAX_FILTER_DEPTH,
    MAX_FILTER_LENGTH,
    All,
    Any,
    Compared,
    Condition,
    Has,
    Not,
    Within,
    accepts,
    condition_of,
    parse_filter,
    write_filter,
)

if TYPE_CHECKING:
    from topk_bandit.domain.features import FeatureValue

SCHEMA: FeatureSchema = (
    Feature("price", Numeric()),
    Feature("in_stock", Boolean()),
    Feature("category", Categorical(("soup", "salad", 'the "best"'))),
    Feature("brand", Categorical(buckets=8)),
    Feature("tags", LabelSet(("vegan", "new"))),
    Feature("taste", Vector(2)),
    Feature("and", Numeric()),
    Feature("2020-sales", Numeric()),
)
ITEM = Features.of(
    {
        "price": 12.5,
        "in_stock": True,
        "category": "soup",
        "brand": "a\\b'c",
        "tags": ("new", "vegan"),
        "and": 3.0,
        "2020-sales": -1.0,
    }
)


@pytest.mark.parametrize(
    ("text", "met", "of_nothing"),
    [
        ("price < 12.5", False, False),
        ("price <= 12.5", True, False),
        ("price > +1.2e1", True, False),
        ("price>=12.6", False, False),
        ("price == 12.5", True, False),
        ("price != 12.5", False, False),
        ("price != 1", True, False),
        ("not price == 1", True, True),
        ("price in [.5, 12.5]", True, False),
        ("in_stock == true", True, False),
        ("in_stock != true", False, False),
        ("in_stock == false", False, False),
        ("category == 'soup'", True, False),
        ('category in ["salad", "the \\"best\\""]', False, False),
        ("brand == 'a\\\\b\\'c'", True, False),
        ("tags has 'vegan'", True, False),
        ("not tags has 'vegan'", False, True),
        ("`and` == 3 and `2020-sales` < 0", True, False),
        # "and" binds more than "or".
        ("price == 12.5 or price == 1 and price == 2", True, False),
        ("(price == 12.5 or price == 1) and price == 2", False, False),
        ("not (price == 1) and price == 12.5", True, False),
        ("not not in_stock == true", True, False),
    ],
)
def test_filters_mean_what_they_say(text: str, *, met: bool, of_nothing: bool) -> None:
    condition = parse_filter(text, SCHEMA)
    assert (accepts(condition, ITEM), accepts(condition, NO_FEATURES)) == (met, of_nothing)
    assert parse_filter(write_filter(condition), SCHEMA) == condition


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "at character 1: got the end where a feature's name, 'not' or '(' is due"),
        ("  pric < 3", "at character 3: items have no feature 'pric', the nearest is 'price'"),
        ("zzz < 3", "at character 1: items have no feature 'zzz'"),
        ("price", "at character 6: got the end where <, <=, >, >=, ==, !=, 'in' or 'has' is due"),
        ("price = 3", "at character 7: got '=', write '=='"),
        ("price < 3 && in_stock == true", "at character 11: got '&', write 'and'"),
        ("price < 'three'", "at character 9: got 'three' where a number is due, as price is numeric"),
        ("price < 1e101", "at character 9: 1e101 is beyond 1e+100"),
        ("price < 1e999", "at character 9: 1e999 is beyond 1e+100"),
        ("price < 3x", "at character 9: got '3'"),
        ("price < 3 4", "at character 11: got 4.0 where 'and', 'or' or the end is due"),
        ("(price < 3", "at character 11: got the end where ')' is due"),
        ("price in 3", "at character 10: got 3.0 where '[' is due"),
        ("price in []", "at character 11: got ']' where a number is due, as price is numeric"),
        ("price in [3 4]", "at character 13: got 4.0 where ',' or ']' is due"),
        ("price has 'x'", "at character 7: 'has' asks a label set, and price is numeric"),
        ("tags == 'new'", "at character 6: tags is a label set: write tags has TEXT"),
        ("tags has 'neu'", "at character 10: tags declares no 'neu', the nearest is 'new'"),
        ("category < 'soup'", "at character 10: < compares numbers, and category is categorical"),
        ("category == 'soop'", "at character 13: category declares no 'soop', the nearest is 'soup'"),
        (
            "category == soup",
            "at character 13: got 'soup' where a text in quotes is due, as category is categorical, perhaps \"soup\"",
        ),
        ("in_stock in [true]", "at character 10: in_stock is true or false: write in_stock == true"),
        ("in_stock == 1", "at character 13: got 1.0 where true or false is due, as in_stock is boolean"),
        ("taste == 1", "at character 1: taste is a vector, which no filter asks for"),
        ("category == 'soup", "at character 13: what ' opens is no text or name, or is not closed"),
        ("brand == '" + "x" * 257 + "'", "at character 10: a text has 257 characters, more than 256"),
        ("x" * 4097, "has 4097 characters, more than 4096"),
    ],
)
def test_what_is_no_filter_is_refused_where_it_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        parse_filter(text, SCHEMA, field="rules[0].filter")
    assert (refused.value.field, refused.value.problem) == ("rules[0].filter", problem)


def test_length_and_depth_are_limited() -> None:
    deep = "(" * MAX_FILTER_DEPTH + "price < 1" + ")" * MAX_FILTER_DEPTH
    assert parse_filter(deep, SCHEMA) == Compared("price", "<", 1.0)
    # What stands beside each other is not deep.
    parse_filter(f"{deep} and {deep}", SCHEMA)
    with pytest.raises(InvalidArgumentError, match=r"at character 36: more than 32 of"):
        parse_filter("not " + deep, SCHEMA)
    longest = "price < 1".ljust(MAX_FILTER_LENGTH)
    assert parse_filter(longest, SCHEMA) == Compared("price", "<", 1.0)


NUMBERS = st.floats(-1e100, 1e100) | st.integers(-2, 2).map(float)
TEXTS = st.text(max_size=4)
CATEGORIES = st.sampled_from(["soup", "salad", 'the "best"'])
LABELS = st.sampled_from(["vegan", "new"])
BRANDS = TEXTS | st.sampled_from(["x", "y"])
TESTS: st.SearchStrategy[Condition] = st.one_of(
    st.builds(
        Compared,
        st.sampled_from(["price", "and", "2020-sales"]),
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        NUMBERS,
    ),
    st.builds(Compared, st.just("in_stock"), st.sampled_from(["==", "!="]), st.booleans()),
    st.builds(Compared, st.just("category"), st.sampled_from(["==", "!="]), CATEGORIES),
    st.builds(Within, st.just("price"), st.lists(NUMBERS, min_size=1, max_size=3).map(tuple)),
    st.builds(Within, st.just("brand"), st.lists(BRANDS, min_size=1, max_size=3).map(tuple)),
    st.builds(Has, st.just("tags"), LABELS),
)


def compound(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, inner) | st.builds(All, several) | st.builds(Any, several)


CONDITIONS = st.recursive(TESTS, compound, max_leaves=12)
ITEMS = st.fixed_dictionaries(
    {},
    optional={
        "price": NUMBERS,
        "and": NUMBERS,
        "2020-sales": NUMBERS,
        "in_stock": st.booleans(),
        "category": CATEGORIES,
        "brand": BRANDS,
        "tags": st.sets(LABELS).map(lambda labels: tuple(sorted(labels))),
    },
)


def in_python(condition: Condition) -> str:
    """Return an equivalent expression of Python about the values `of`."""
    match condition:
        case Compared(name, comparison, value):
            return f"({name!r} in of and of[{name!r}] {comparison} {value!r})"
        case Within(name, values):
            return f"({name!r} in of and of[{name!r}] in {values!r})"
        case Has(name, label):
            return f"({label!r} in of.get({name!r}, ()))"
        case Not(inner):
            return f"(not {in_python(inner)})"
        case All(several):
            return "(" + " and ".join(map(in_python, several)) + ")"
        case Any(several):
            return "(" + " or ".join(map(in_python, several)) + ")"


@given(CONDITIONS, ITEMS)
def test_a_condition_is_read_back_and_evaluates_as_python_does(
    condition: Condition, values: dict[str, FeatureValue]
) -> None:
    assert parse_filter(write_filter(condition), SCHEMA) == condition
    assert condition_of(write_filter(condition)) == condition
    expected = eval(in_python(condition), {"of": values})
    assert accepts(condition, Features.of(values)) is expected


@given(st.text(alphabet="pricetagsnd <>=!()[]'\",.0123`\\", max_size=30))
def test_any_text_is_a_filter_or_is_refused_by_name(text: str) -> None:
    fields, read = [], []
    try:
        read.append(parse_filter(text, SCHEMA))
    except InvalidArgumentError as error:
        fields.append(error.field)
    assert fields == ([] if read else ["filter"])
    assert [parse_filter(write_filter(condition), SCHEMA) for condition in read] == read
