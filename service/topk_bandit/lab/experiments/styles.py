"""One colour, line and mark for each family of policies, the same in all figures."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Style", "styles_of"]


class Style(NamedTuple):
    """How a curve is drawn: its colour distinguishes it from others, and so do its line and its mark."""

    colour: str
    line: str | tuple[float, tuple[float, ...]]
    mark: str
    hatch: str


_DASHED, _DASH_DOT, _DOTTED = (0.0, (5.0, 1.5)), (0.0, (5.0, 1.5, 1.0, 1.5)), (0.0, (1.2, 1.2))
_LONG, _TWO_DOTS, _SPARSE = (0.0, (9.0, 2.0)), (0.0, (5.0, 1.2, 1.0, 1.2, 1.0, 1.2)), (0.0, (2.0, 2.5))

# Okabe and Ito's colours, which people with any colour vision can tell apart, and darker ones of their hues.
_OF_FAMILIES = {
    "GP-TopK (service)": Style("#111111", "-", "o", ""),
    "WCK": Style("#0072B2", "-", "s", "//"),
    "CK": Style("#D55E00", _DASHED, "^", "\\\\"),
    "WK": Style("#009E73", _DASH_DOT, "v", ".."),
    "epsilon-greedy": Style("#E69F00", _TWO_DOTS, "P", "xx"),
    "MAB-UCB": Style("#CC79A7", _LONG, "D", "++"),
    "Random": Style("#8A8A8A", _DOTTED, "x", ""),
    "Thompson sampling": Style("#56B4E9", _DASHED, "<", "--"),
    "linear Thompson": Style("#8C510A", _DASH_DOT, ">", "oo"),
    "popularity": Style("#E69F00", _DASHED, "P", "xx"),
    "VW CCB": Style("#882255", _TWO_DOTS, "p", "||"),
    "VW slates": Style("#44AA99", _LONG, "h", "**"),
    "pending not counted": Style("#6A51A3", _DASHED, "d", "//"),
    "64 rows": Style("#66A61E", _DASH_DOT, "8", "\\\\"),
    "anew every 100 rounds": Style("#E7298A", _LONG, "X", ".."),
}
_OTHERS = (
    Style("#0072B2", "-", "o", ""),
    Style("#D55E00", _DASHED, "s", "//"),
    Style("#009E73", _DASH_DOT, "^", "\\\\"),
    Style("#CC79A7", _LONG, "D", ".."),
    Style("#E69F00", _TWO_DOTS, "v", "xx"),
    Style("#56B4E9", _DOTTED, "P", "++"),
    Style("#4D4D4D", _SPARSE, "X", "--"),
    Style("#882255", _DASH_DOT, "<", "||"),
    Style("#66A61E", _TWO_DOTS, ">", "oo"),
)


def styles_of(families: tuple[str, ...]) -> dict[str, Style]:
    """Return the style of each family; methods that are no bandit's policies are styled by their place."""
    known = set(families) & set(_OF_FAMILIES)
    distinct = tuple(dict.fromkeys(families))
    if known:
        free = [style for style in _OTHERS if style.colour not in {_OF_FAMILIES[name].colour for name in known}]
        others = iter(free or _OTHERS)
        return {name: _OF_FAMILIES[name] if name in known else next(others) for name in distinct}
    return {name: _OTHERS[place % len(_OTHERS)] for place, name in enumerate(distinct)}
