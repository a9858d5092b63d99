"""Callers and faults: carries out the actions of a plan on workers and their server, and keeps the ledger."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from tests.simulation.feedback import MOST_PATIENCE_SECONDS, NAME, Feedback, draw_patience, word_of
from tests.simulation.importing import Importers, PastSlates
from tests.simulation.interviews import STUDY, Interviews, PastAnswers
from tests.simulation.ledger import Asked, Ledger, Response
from tests.simulation.line import Line, Trouble
from tests.simulation.worker import Alarms, start_worker

from topk_bandit.domain.bandits import Item
from topk_bandit.domain.errors import TopkBanditError, UnavailableError
from topk_bandit.domain.rules import Exclude, Pin, SlateRule
from topk_bandit.domain.slates import RecommendationRequest
from topk_bandit.domain.stages import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.actions import Action
    from tests.simulation.server import Server
    from tests.simulation.worker import Worker

    from topk_bandit.domain.bandits import BanditSettings
    from topk_bandit.domain.slates import Recommendation
    from topk_bandit.domain.studies import StudySettings

__all__ = ["MOST_PATIENCE_SECONDS", "NAME", "Shop"]

T = TypeVar("T")

FIRST_ITEMS = 8
MOST_ITEMS = 12
VISITORS = 7
DESIGN_SECONDS = 2.0
"""So long a design takes on average: sometimes longer than its lease lasts."""

SILENCE_SECONDS = 2.9
"""Who retires an item waits for a worker that was heard of so lately; it is 3 seconds, in whole milliseconds."""

TROUBLES = {
    "cut a worker off": "refused",
    "lose calls": "call_lost",
    "lose replies": "reply_lost",
    "slow": "slow",
    "send twice": "sent_twice",
    "lose hints": "hint_lost",
}


_Act: TypeAlias = "Callable[[Action, np.random.Generator], Coroutine[None, None, None]]"


class Shop:
    """Callers of several workers on one server.

    Parameters
    ----------
    study
        What the study is like that callers make.
    rng
        Of the network and of new ids.
    has_rules
        Whether slates keep rules, which change as settings do.

    Attributes
    ----------
    items
        Those that are not retired.
    trace
        What happened, in order: virtual seconds, the number of the action, and words.
    """

    def __init__(
        self,
        server: Server,
        *,
        n_workers: int,
        settings: BanditSettings,
        study: StudySettings,
        rng: np.random.Generator,
        has_rules: bool = False,
    ) -> None:
        self.server = server
        self.ledger = Ledger()
        self.alarms = Alarms()
        self.trace: list[tuple[float, int, str]] = []
        self.workers: dict[int, Worker] = {}
        self.settings = settings
        self._has_rules = has_rules
        self._rng = rng
        self._lines: list[Line] = []
        self._clocks = dict.fromkeys(range(n_workers), 0.0)
        self._calls: dict[asyncio.Task[None], None] = {}
        self._under_way: dict[asyncio.Task[object], int] = {}
        self.items: list[str] = []
        self._sent: dict[str, RecommendationRequest] = {}
        self._hidden = ""
        self._n_items = 0
        self._interviews = Interviews(self, study)
        self._acts = self._all_acts(study)

    def _all_acts(self, study: StudySettings) -> dict[str, _Act]:
        """Return what each kind of action does."""
        return {
            "recommend": self._recommend,
            "recommend again": self._recommend_again,
            "reuse a request id": self._reuse,
            "add items": self._add_items,
            "retire an item": self._retire,
            "hide or show an item": self._hide_or_show,
            "change settings": self._change_settings,
            "reset": self._reset,
            "kill a worker": self._kill,
            "kill all workers": self._kill_all,
            "store away": self._take_store_away,
            "fail over": self._fail_over,
            "lose a snapshot": self._harm_snapshots,
            "spoil a snapshot": self._harm_snapshots,
            "set the store's clock": self._set_store_clock,
            "set a worker's clock": self._set_worker_clock,
            **dict.fromkeys(TROUBLES, self._trouble),
            **Feedback(self).acts,
            **self._interviews.acts,
            **Importers(self, PastSlates(self)).acts,
            **Importers(self, PastAnswers(study)).acts,
        }

    async def open(self, *, begins_warm: bool) -> None:
        """Start the workers, and create a bandit with items.

        Parameters
        ----------
        begins_warm
            Whether the study comes first, whose answers are the bandit's prior.
        """
        for number in self._clocks:
            self._start(number)
        bandits = self.workers[0].bandits
        if begins_warm and await self._interviews.open(self.workers[0], self._rng):
            self.settings = replace(self.settings, prior_study=STUDY.study)
        await bandits.create_bandit(NAME, self.settings)
        self.items = [self._new_item() for _ in range(FIRST_ITEMS)]
        await bandits.upsert_items(NAME, [Item(item_id) for item_id in self.items])
        self.ledger.added |= dict.fromkeys(self.items, self.now())

    def begin(self, action: Action) -> None:
        """Begin an action, which goes on beside the others."""
        self.begin_call(self._acts[action.kind](action, np.random.default_rng(action.seed)))

    def begin_call(self, call: Coroutine[None, None, None]) -> None:
        """Begin something that ends by itself."""
        task = asyncio.get_running_loop().create_task(call)
        self._calls[task] = None
        task.add_done_callback(self._end_call)

    @property
    def n_calls(self) -> int:
        """How many calls have not ended."""
        return len(self._calls)

    def heal(self) -> None:
        """End all faults."""
        self.server.is_away = False
        for line in self._lines:
            line.trouble = Trouble()
        for number in self._clocks:
            if number not in self.workers:
                self._start(number)

    async def close(self) -> None:
        """End all workers, without a word to anybody."""
        for worker in self.workers.values():
            await worker.kill()
        self.workers.clear()

    def request_of(
        self, request_id: str, context: tuple[float, ...], candidates: tuple[str, ...] | None = None
    ) -> RecommendationRequest:
        """Return a request; where there are groups it has the shop's own slate, and one of a few visitors."""
        request = RecommendationRequest(request_id, context, candidates)
        if self._has_rules and sum(request_id.encode()) % 2:
            out = self.items[sum(request_id.encode()) % len(self.items)]
            request = replace(request, rules=(SlateRule(Exclude((out,)), may_relax=True),))
        if not self.settings.control_share:
            return request
        own = [item_id for item_id in self.items if item_id != self._hidden][: self.settings.slate_size]
        visitor = sum(request_id.encode()) % VISITORS
        return replace(request, baseline_item_ids=tuple(own), group_key=f"visitor {visitor}")

    async def ask(
        self, number: int, worker: Worker, request: RecommendationRequest, *, patience: float, deaf: bool = False
    ) -> Asked:
        """Ask a worker for a slate, and enter the response into the ledger."""
        asked = Asked(number, request.request_id, worker.number, self.now())
        self.ledger.asked[request.request_id].append(asked)
        call = worker.recommender.recommend(NAME, request)
        response, answer, word = await self.call(worker, call, patience, deaf=deaf)
        asked.response, asked.answer, asked.ended_at = response, answer, self.now()
        asked.failovers = self.server.archive.failovers
        if answer is not None:
            word = f"{answer.recommendation_id[:8] or 'no id'} {','.join(answer.slate)} version {answer.model_version}"
            word += " degraded" * answer.degraded
            self._look_for_retired(asked, answer, worker)
        self.note(number, f"worker {worker.number} is asked for {request.request_id}: {response} {word}")
        return asked

    def _look_for_retired(self, asked: Asked, answer: Recommendation, worker: Worker) -> None:
        """Find items that the caller can't be shown.

        Whoever retires one waits for workers that the server has heard of lately. One that was silent, and could not
        read the log since, can't know; its slates say so.
        """
        for item_id in answer.slate:
            retired_at = self.ledger.retired.get(item_id, asked.began_at + 1.0)
            was_waited_for = worker.line.was_heard(retired_at - SILENCE_SECONDS, retired_at)
            is_excused = answer.degraded and not was_waited_for and worker.line.read_at < retired_at
            if retired_at <= asked.began_at and not is_excused:
                self.ledger.surprises.append(f"{asked.request_id} is shown {item_id}, which was retired before")

    # What callers do.

    async def _recommend(self, action: Action, rng: np.random.Generator) -> None:
        candidates = tuple(sorted(rng.permutation(self.items)[:6].tolist())) if rng.random() < 0.2 else None
        context = tuple(rng.normal(size=2).round(3).tolist())
        await self._ask_any(action, rng, self.request_of(f"r{action.number}", context, candidates))

    async def _recommend_again(self, action: Action, rng: np.random.Generator) -> None:
        known = list(self._sent.values())
        if known:
            await self._ask_any(action, rng, known[-1 - int(rng.integers(min(12, len(known))))])

    async def _reuse(self, action: Action, rng: np.random.Generator) -> None:
        known = list(self._sent.values())
        if known:
            other = replace(known[-1 - int(rng.integers(min(12, len(known))))], context=(7.0, 7.0))
            await self._ask_any(action, rng, other)

    async def _ask_any(self, action: Action, rng: np.random.Generator, request: RecommendationRequest) -> None:
        self._sent.setdefault(request.request_id, request)
        if worker := self.any_worker(rng):
            patience, deaf = draw_patience(rng)
            await self.ask(action.number, worker, request, patience=patience, deaf=deaf)

    async def _add_items(self, action: Action, rng: np.random.Generator) -> None:
        if worker := self.any_worker(rng):
            new = [self._new_item() for _ in range(min(2, MOST_ITEMS - len(self.items)))]
            call = worker.bandits.upsert_items(NAME, [Item(item_id) for item_id in new])
            if await self._change(action, rng, worker, call, f"adds {','.join(new)}"):
                self.ledger.added |= dict.fromkeys(new, self.now())
            self.items += new

    async def _retire(self, action: Action, rng: np.random.Generator) -> None:
        worker = self.any_worker(rng)
        if worker is None or len(self.items) <= self.settings.slate_size + 3:
            return
        item_id = self.items.pop(int(rng.integers(len(self.items))))
        self.ledger.leaving.add(item_id)
        call = worker.bandits.retire_items(NAME, [item_id])
        if await self._change(action, rng, worker, call, f"retires {item_id}"):
            self.ledger.retired[item_id] = self.now()
            for one in list(self.workers.values()):
                request = self.request_of(f"r{action.number}-{one.number}", (1.0, 0.0))
                self.begin_call(self._ask_at_once(action, one, request))

    async def _ask_at_once(self, action: Action, worker: Worker, request: RecommendationRequest) -> None:
        await self.ask(action.number, worker, request, patience=MOST_PATIENCE_SECONDS)

    async def _hide_or_show(self, action: Action, rng: np.random.Generator) -> None:
        """Hide an item, or show the one that is hidden: enough are left for a slate."""
        if worker := self.any_worker(rng):
            hides = self._hidden not in self.items
            if hides:
                self._hidden = self.items[int(rng.integers(len(self.items)))]
            item = Item(self._hidden, available=not hides)
            words = f"{'hides' if hides else 'shows'} {item.item_id}"
            is_answered = await self._change(action, rng, worker, worker.bandits.upsert_items(NAME, [item]), words)
            if is_answered and not hides and self._hidden == item.item_id:
                self._hidden = ""

    async def _change_settings(self, action: Action, rng: np.random.Generator) -> None:
        worker = self.any_worker(rng)
        if worker is None:
            return
        default = None if rng.random() < 0.3 else round(float(rng.normal()), 3)
        wait_ms = int(rng.integers(60_000, 3_000_000))
        others: dict[str, Any] = {"default_reward": default, "reward_wait_ms": wait_ms}
        if self.settings.control_share:
            others["stage"] = list(Stage)[action.number % len(Stage)]
        if self._has_rules:
            others["rules"] = self._draw_rules(action.number)
        call = worker.bandits.update_bandit(NAME, lambda settings: replace(settings, **others))
        words = ", ".join(f"{key} {one}" for key, one in others.items())
        await self._change(action, rng, worker, call, f"sets {words}")

    def _draw_rules(self, number: int) -> tuple[SlateRule, ...]:
        """Return rules that an action sets: an item less, and some of which one is at a position if it can be."""
        there = (*self.items, "nowhere")
        out, pinned = there[number % len(there)], tuple(dict.fromkeys(there[number % 3 :: 3]))
        position = number % self.settings.slate_size
        return (SlateRule(Exclude((out,))), SlateRule(Pin(pinned, position), may_relax=True))[: number % 3]

    async def _reset(self, action: Action, rng: np.random.Generator) -> None:
        if worker := self.any_worker(rng):
            request_id = f"reset {int(rng.integers(3))}"
            call = worker.bandits.reset_bandit(NAME, request_id=request_id)
            await self._change(action, rng, worker, call, f"has the bandit forget, as {request_id}")

    async def _change(
        self, action: Action, rng: np.random.Generator, worker: Worker, call: Coroutine[object, object, T], words: str
    ) -> bool:
        patience, deaf = draw_patience(rng)
        response, _, word = await self.call(worker, call, patience, deaf=deaf)
        self.note(action.number, f"worker {worker.number} {words}: {response} {word}")
        return response is Response.ANSWER

    # What goes wrong.

    async def _kill(self, action: Action, rng: np.random.Generator) -> None:
        if worker := self.any_worker(rng):
            await self._kill_one(action, worker, dead_seconds=float(rng.uniform(0.1, 8.0)))

    async def _kill_all(self, action: Action, rng: np.random.Generator) -> None:
        seconds = float(rng.uniform(0.1, 8.0))
        await asyncio.gather(
            *(self._kill_one(action, worker, dead_seconds=seconds) for worker in list(self.workers.values()))
        )

    async def _kill_one(self, action: Action, worker: Worker, *, dead_seconds: float) -> None:
        self.note(action.number, f"worker {worker.number} is killed")
        del self.workers[worker.number]
        self._lines.remove(worker.line)
        for task, number in list(self._under_way.items()):
            if number == worker.number:
                task.cancel()
        await worker.kill()
        await asyncio.sleep(dead_seconds)
        if worker.number not in self.workers:
            self._start(worker.number)

    async def _trouble(self, action: Action, rng: np.random.Generator) -> None:
        if worker := self.any_worker(rng):
            what, share, seconds = TROUBLES[action.kind], float(rng.uniform(0.3, 1.0)), float(rng.uniform(0.2, 15.0))
            self.note(action.number, f"line of worker {worker.number}: {what} for {share:.0%}, {seconds:.3f} s")
            setattr(worker.line.trouble, what, share)
            await asyncio.sleep(seconds)
            setattr(worker.line.trouble, what, 0.0)

    async def _take_store_away(self, action: Action, rng: np.random.Generator) -> None:
        seconds = float(rng.uniform(0.2, 20.0))
        self.note(action.number, f"the store is away, {seconds:.3f} s")
        self.server.is_away = True
        await asyncio.sleep(seconds)
        self.server.is_away = False

    async def _fail_over(self, action: Action, rng: np.random.Generator) -> None:
        undone = self.server.fail_over(float(rng.uniform(0.0, 1.0)))
        self.note(action.number, f"the store fails over, and {undone} events are undone")

    async def _harm_snapshots(self, action: Action, rng: np.random.Generator) -> None:  # noqa: ARG002 - draws nothing
        self.server.harm_snapshots("lost" if action.kind.startswith("lose") else "unreadable")
        self.note(action.number, action.kind)

    async def _set_store_clock(self, action: Action, rng: np.random.Generator) -> None:
        seconds = float(rng.uniform(-600.0, 7200.0))
        self.server.ahead_seconds += seconds
        self.note(action.number, f"the store's clock jumps by {seconds:.3f} s")

    async def _set_worker_clock(self, action: Action, rng: np.random.Generator) -> None:
        number, seconds = int(rng.integers(len(self._clocks))), float(rng.uniform(-7200.0, 7200.0))
        self._clocks[number] += seconds
        self.note(action.number, f"the clock of worker {number} jumps by {seconds:.3f} s")

    # What all of them need.

    def _start(self, number: int) -> None:
        line = Line(self.server, self._lines, self._rng)
        self._lines.append(line)

        def clock_ms() -> int:
            return 1_700_000_000_000 + round(1e3 * (self.now() + self._clocks[number]))

        self.workers[number] = start_worker(
            number,
            line,
            hooks=self.alarms,
            clock_ms=clock_ms,
            new_id=lambda: f"{self._rng.integers(2**62):016x}",
            design_seconds=lambda: float(self._rng.exponential(DESIGN_SECONDS)),
        )

    def _new_item(self) -> str:
        self._n_items += 1
        return f"i{self._n_items}"

    def any_worker(self, rng: np.random.Generator) -> Worker | None:
        """Draw a worker that lives."""
        alive = list(self.workers.values())
        return alive[int(rng.integers(len(alive)))] if alive else None

    async def call(
        self, worker: Worker, call: Coroutine[object, object, T], patience: float, *, deaf: bool
    ) -> tuple[Response, T | None, str]:
        """Return a caller's response, with its result or the word of a refusal."""
        task = asyncio.get_running_loop().create_task(call)
        self._under_way[task] = worker.number
        await asyncio.wait([task], timeout=patience)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        del self._under_way[task]
        if task.cancelled():
            return Response.NOTHING, None, ""
        return self._tell(task, deaf=deaf)

    def _tell(self, task: asyncio.Task[T], *, deaf: bool) -> tuple[Response, T | None, str]:
        error = task.exception()
        if error is not None and not isinstance(error, TopkBanditError):
            self.ledger.surprises.append(f"an error that nobody foresaw: {type(error).__name__}: {error}")
        if deaf:
            return Response.NOTHING, None, ""
        if error is None:
            return Response.ANSWER, task.result(), ""
        return (Response.UNAVAILABLE if isinstance(error, UnavailableError) else Response.REFUSED), None, word_of(error)

    def _end_call(self, task: asyncio.Task[None]) -> None:
        del self._calls[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.ledger.surprises.append(f"the simulation itself failed: {type(error).__name__}: {error}")

    def note(self, number: int, words: str) -> None:
        """Enter into the trace what came of an action."""
        self.trace.append((self.now(), number, words))

    def now(self) -> float:
        """Return the virtual seconds."""
        return asyncio.get_running_loop().time()
