"""An event loop whose time leaps to whatever is due next, so that hours pass in seconds and each run is the same.

It has no sockets and no threads: what is handed to an executor is computed on the loop, once the time that it would
have taken has passed.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

__all__ = ["Pace", "VirtualLoop", "run"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Pace(Executor):
    """Stands for threads, which a virtual loop does not ask for anything but how long they take.

    Parameters
    ----------
    computing_seconds
        Says how long the next piece of work takes; None for what the loop says.
    """

    def __init__(self, computing_seconds: Callable[[], float] | None = None) -> None:
        self.computing_seconds = computing_seconds

    def submit(self, *_: Any, **__: Any) -> Any:  # noqa: ANN401 - as its parent
        """Refuse work."""
        raise RuntimeError("work is for the loop")


class _Leap:
    """Stands for the selector, in which a loop waits: nothing ever arrives, and waiting is over at once."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> Sequence[object]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing is due")
        self.now += max(0.0, timeout)
        return ()

    def close(self) -> None:
        """Let go of nothing."""


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop in virtual time, which begins at 0.

    Parameters
    ----------
    computing_seconds
        Says how long the next piece of work on an executor takes that has no `Pace` of its own.
    """

    def __init__(self, computing_seconds: Callable[[], float]) -> None:
        super().__init__()
        self._computing_seconds = computing_seconds
        self._leap = self._selector = _Leap()

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._leap.now

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Return what a function will have returned once the time that it takes has passed."""
        done: asyncio.Future[T] = self.create_future()
        pace = executor.computing_seconds if isinstance(executor, Pace) else None
        self.call_later((pace or self._computing_seconds)(), _settle, done, func, args)
        return done

    def _process_events(self, event_list: Sequence[object]) -> None:
        """Nothing ever arrives."""

    def _write_to_self(self) -> None:
        """Nobody waits in the selector."""


def _settle(done: asyncio.Future[T], func: Callable[..., T], args: tuple[object, ...]) -> None:
    if done.cancelled():
        return
    try:
        result = func(*args)
    except Exception as error:  # noqa: BLE001 - it is for who waits for the result
        done.set_exception(error)
    else:
        done.set_result(result)


def run(main: Coroutine[object, object, T], *, computing_seconds: Callable[[], float]) -> T:
    """Run a coroutine to its end in a virtual loop of its own."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(computing_seconds)) as runner:
        return runner.run(main)
