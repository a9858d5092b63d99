"""Compiling ahead of the first request."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
from numba.core import event
from numba.core.dispatcher import Dispatcher

from topk_bandit.domain.bandits import Exploration, Kernel, PaperBeta
from topk_bandit.domain.features import Features
from topk_bandit.domain.rules import Apart, Count, Group, Pin
from topk_bandit.learning.allowed_slates import AllowedSlates
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.item_table import ItemTable
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State, kernel_of
from topk_bandit.learning.search import LONGEST_FINE
from topk_bandit.learning.slate_rules import Candidates, compile_rules
from topk_bandit.learning.state_changes import change_item_features

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from topk_bandit.domain.rules import Rule

__all__ = ["are_rules_compiled", "warm_up", "warm_up_rules"]

_SHADES = Group("shade")
_OF_EACH_KIND: tuple[Rule, ...] = (
    Pin(("i0", "i1"), 0),
    Count(_SHADES, most=1),
    Count(Group("shade", "2"), least=1),
    Apart(_SHADES),
)

_rules_are_compiled = threading.Event()


def warm_up(report: Callable[[int, int], None] | None = None) -> None:
    """Compile all that serving without rules calls, or load it from the cache of an earlier start.

    It takes a small bandit, whose items have features at first, through everything that can happen to one: slates
    shown, rewarded out of order and closed, rows projected, rows that leave, and a state taken up again.

    Parameters
    ----------
    report
        Called each time the compiler has finished a function, with the number of this package's functions that are
        compiled and the number of all that it has. What comes from the cache is not reported. A function may stand
        for several calls with the same numbers, because it is compiled together with functions of the compiler's own
        library; a few are never compiled, because serving does not call them.
    """
    with ExitStack() as stack:
        if report is not None:
            stack.enter_context(event.install_listener("numba:compile", _Listener(report)))
        _use_everything()


def warm_up_rules() -> None:
    """Compile what decisions under rules call beside it: half as much again, which few bandits need."""
    kernel, rng = kernel_of(Kernel.ADAPTIVE, 20, 3), np.random.default_rng(0)
    state = State.initial(kernel, context_dim=2, limits=Limits(rows=16, pending_rows=2))
    exploration = Exploration(beta=PaperBeta(0.1), uniform_share=0.5)
    eligible, allowed = _allow(_OF_EACH_KIND, 3)
    for number in range(6):
        context = rng.normal(size=2)
        ranking = decide(state, exploration, context=context, eligible=eligible, rng=rng, allowed=allowed).ranking
        state = state.shown(f"r{number}", context, ranking)
        state = state.rewarded(f"r{number}", context, ranking, reward=float(rng.normal()))
    _decide_long_slates(exploration, _allow([Pin(("i0",), 0)], LONGEST_FINE + 1)[1])
    _rules_are_compiled.set()


def are_rules_compiled() -> bool:
    """Return whether a decision under rules compiles nothing: else it takes long, and is none for an event loop."""
    return _rules_are_compiled.is_set()


def _allow(rules: Sequence[Rule], slate_size: int) -> tuple[NDArray[np.int32], AllowedSlates]:
    """Return what rules leave of twenty items, and the slates that they allow."""
    table = ItemTable.of([f"i{n}" for n in range(20)], [Features((("shade", str(n % 5)),)) for n in range(20)])
    left = compile_rules(list(rules), Candidates(table), slate_size)
    if left is None:
        raise AssertionError("the rules leave no slate")
    return left.places.astype(np.int32), AllowedSlates(left.rules)


class _Listener(event.Listener):
    """Counts the functions of this package as they are compiled."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self._report = report
        self._known = _compiled_functions()
        self._compiled: set[str] = set()

    def on_start(self, event: event.Event) -> None:
        """Wait for the end."""

    def on_end(self, event: event.Event) -> None:
        self._compiled |= self._known & {_name(event.data["dispatcher"])}
        self._report(len(self._compiled), len(self._known))


def _compiled_functions() -> set[str]:
    """Return the names of all functions of this package that are to be compiled."""
    modules = [module for name, module in sys.modules.items() if name.startswith(f"{__package__}.")]
    return {_name(one) for module in modules for one in vars(module).values() if isinstance(one, Dispatcher)}


def _name(dispatcher: Dispatcher) -> str:
    return f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}"


def _use_everything() -> None:
    kernel = kernel_of(Kernel.ADAPTIVE, 20, 3)
    limits = Limits(rows=16, pending_rows=2)
    exploration = Exploration(beta=PaperBeta(0.1), uniform_share=0.5)
    eligible = np.arange(20, dtype=np.int32)
    rng = np.random.default_rng(0)
    state = change_item_features(State.initial(kernel, context_dim=2, limits=limits), np.eye(20, 4))
    for number in range(96):
        if number == 48:
            state = change_item_features(state, None)
        context = rng.normal(size=2)
        ranking = decide(state, exploration, context=context, eligible=eligible, rng=rng).ranking
        state = state.shown(f"r{number}", context, ranking)
        if number % 4 == 3:
            state = state.closed(f"r{number - 1}")
        state = state.rewarded(f"r{number - number % 2}", context, ranking, reward=float(rng.normal()))
    State.restore(kernel, state.refit().checkpoint, limits=limits)
    _decide_long_slates(exploration)


def _decide_long_slates(exploration: Exploration, allowed: AllowedSlates | None = None) -> None:
    """Decide slates that are searched as long ones are, before and after a reward."""
    kernel, rng = kernel_of(Kernel.ADAPTIVE, 20, LONGEST_FINE + 1), np.random.default_rng(0)
    state, eligible = State.initial(kernel, context_dim=2, limits=Limits(rows=16)), np.arange(20, dtype=np.int32)
    for number in range(2):
        context = rng.normal(size=2)
        ranking = decide(state, exploration, context=context, eligible=eligible, rng=rng, allowed=allowed).ranking
        state = state.shown(f"r{number}", context, ranking)
        state = state.rewarded(f"r{number}", context, ranking, reward=float(number))
