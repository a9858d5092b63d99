"""The real use cases of studies on the reference store, behind a real server, for tests of the wire."""

from __future__ import annotations

import itertools
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from google.longrunning.operations_pb2 import Operation, WaitOperationRequest
from tests.rpc.harness import serving
from tests.waiting import PATIENCE, until

from topk_bandit.domain.hooks import Hooks
from topk_bandit.domain.quotas import Quota, Quotas
from topk_bandit.store.memory.studies import MemoryStudies
from topk_bandit.studies.administration import Studies
from topk_bandit.studies.designer import Designer
from topk_bandit.v1 import preference_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from google.longrunning.operations_pb2_grpc import OperationsStub
    from tests.rpc.harness import RunningServer

    from topk_bandit.store.study_log import StudyStore

T = TypeVar("T")

__all__ = [
    "FEATURES",
    "QUOTA",
    "TASTE",
    "HeldExecutor",
    "answer_to",
    "new_id",
    "studies_of",
    "study",
    "study_server",
    "utilities",
    "wait_for_design",
]

QUOTA = 4
TASTE = "tenants/acme/studies/taste"
FEATURES = np.random.default_rng(5).normal(size=(9, 3))
THETA = np.array([2.0, -1.5, 1.0])
START_MS = 1_700_000_000_000


def new_id() -> str:
    return uuid.uuid4().hex


def wait_for_design(operations: OperationsStub, name: str) -> Operation:
    """Wait until a design has ended, in as many calls as that takes: the service answers each after some seconds."""
    ended: list[Operation] = []

    def has_ended() -> bool:
        ended.append(operations.WaitOperation(WaitOperationRequest(name=name), timeout=PATIENCE))
        return ended[-1].done

    until(has_ended, what=f"{name} has ended")
    return ended[-1]


def utilities() -> dict[str, float]:
    """Return what the people of these tests like, by item id."""
    return {f"i{number}": float(row @ THETA) for number, row in enumerate(FEATURES)}


def study(name: str = TASTE, *, kind: int = pb.ANSWER_KIND_RANKING, **fields: object) -> pb.Study:
    items = [pb.StudyItem(item_id=f"i{number}", features=row) for number, row in enumerate(FEATURES)]
    list_size = 0 if kind == pb.ANSWER_KIND_PAIR else 3
    return pb.Study(
        **{"name": name, "items": items, "answer_kind": kind, "list_size": list_size, "budget": 60, **fields}
    )


def answer_to(question: pb.Question, kind: int, liked: dict[str, float]) -> pb.Answer:
    """Return what somebody answers who is sure of what they like."""
    best = sorted(question.item_ids, key=lambda item_id: -liked[item_id])
    answer = pb.Answer(question_id=question.question_id)
    if kind == pb.ANSWER_KIND_RATINGS:
        answer.ratings.ratings.extend(pb.ItemRating(item_id=one, value=4.0 + liked[one]) for one in best)
    elif kind == pb.ANSWER_KIND_RANKING:
        answer.ranking.item_ids.extend(best)
    else:
        answer.chosen_item_id = best[0]
    return answer


class HeldExecutor(ThreadPoolExecutor):
    """Begins nothing before it is let go."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._gate = threading.Event()

    def submit(self, work: Callable[..., T], /, *given: object, **named: object) -> Future[T]:
        def begin() -> T:
            self._gate.wait()
            return work(*given, **named)

        return super().submit(begin)

    def let_go(self) -> None:
        self._gate.set()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        self.let_go()
        super().shutdown(wait, cancel_futures=cancel_futures)


def studies_of(
    store: StudyStore,
    executor: ThreadPoolExecutor,
    *,
    owner: str = "me",
    hooks: Hooks | None = None,
    designs: ThreadPoolExecutor | None = None,
    clock_ms: Callable[[], int] = lambda: START_MS,
) -> tuple[Studies, Designer]:
    """Return a worker's studies and its designer, which is not started; `designs` computes designs alone.

    A design depends on its study's id, so that ids are numbers.
    """
    hooks, ids = hooks or Hooks(), (f"{owner}-{number}" for number in itertools.count())
    designer = Designer(
        store,
        designs or executor,
        threads=1,
        hooks=hooks,
        owner=owner,
        new_reference=lambda: "reference",
        most_seconds=PATIENCE,
    )
    studies = Studies(
        store,
        designer,
        executor,
        hooks=hooks,
        quotas=Quotas({Quota.STUDIES: QUOTA}),
        new_id=ids.__next__,
        most_bytes=2**28,
        clock_ms=clock_ms,
    )
    return studies, designer


@contextmanager
def study_server(
    *,
    designs: ThreadPoolExecutor | None = None,
    clock_ms: Callable[[], int] = lambda: START_MS,
    **options: object,
) -> Iterator[RunningServer]:
    """Run a server for the length of a test."""
    started: list[Designer] = []
    with ThreadPoolExecutor(3) as executor:

        async def make_studies() -> Studies:
            # Its clock stands still: no lease lapses while the machine does something else.
            store = MemoryStudies(clock_ms=lambda: START_MS)
            studies, designer = studies_of(store, executor, designs=designs, clock_ms=clock_ms)
            designer.start()
            started.append(designer)
            return studies

        with serving(make_studies=make_studies, **options) as server:
            yield server
            if isinstance(designs, HeldExecutor):
                designs.let_go()
            server.run(started[0].stop())
