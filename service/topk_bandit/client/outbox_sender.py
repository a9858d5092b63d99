"""Delivers what an outbox has on disk, a few batches at a time, until the service has answered for each call."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from topk_bandit.client.errors import (
    AlreadyExists,
    Cancelled,
    ClientError,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from topk_bandit.client.forks import follow_forks
from topk_bandit.client.late_rewards import error_of_late, error_of_late_activation
from topk_bandit.client.loops import LoopClosedError
from topk_bandit.client.outbox_file import KeptActivation, KeptReward
from topk_bandit.client.values import (
    ActivationOutcome,
    ActivationReceipt,
    OutboxStatus,
    Refusal,
    RewardOutcome,
    RewardReceipt,
)
from topk_bandit.domain.slates import NOTHING_NAMED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topk_bandit.client.late_rewards import LateRewards
    from topk_bandit.client.operations import Operations
    from topk_bandit.client.outbox_file import KeptCall, OutboxFile
    from topk_bandit.client.retries import RetryPolicy

__all__ = ["OutboxSender"]

# The service takes the rewards of a call one after the other: a few calls at once share the syncs of its store.
# Activations have a call each; as many are taken from the file at once.
_MAX_BATCH = 100
_CALLS = 4
# Between two looks for what other processes have left behind.
_LOOK_SECONDS = 1.0
_FLUSH_PAUSE_SECONDS = 0.01

# What another attempt would be answered with, too. A key can be mended, and most quotas pass.
_REFUSALS = (InvalidArgument, NotFound, AlreadyExists, FailedPrecondition)
_FINAL_QUOTA = "REWARD_COUNT"
_OUTAGES = (Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable)
# What the next call would be answered with, too.
_HINDRANCES = (*_OUTAGES, PermissionDenied, Unauthenticated)

_Answer = RewardReceipt | ActivationReceipt | ClientError

_log = logging.getLogger("topk_bandit.client")


class OutboxSender:
    """A few threads that empty an outbox's file into the service.

    Parameters
    ----------
    send
        Makes a call within so many seconds, and returns its result.
    goes_over_forks
        Whether a forked process can send, too.
    on_refused
        Called for each call that is taken out undelivered, before it is (perhaps twice); None logs the first of a kind.
    """

    def __init__(
        self,
        file: OutboxFile,
        *,
        operations: Operations,
        send: Callable[..., Any],
        timeout: float,
        late: LateRewards,
        retry: RetryPolicy,
        random: Callable[[], float],
        goes_over_forks: bool,
        on_refused: Callable[[Refusal], object] | None,
    ) -> None:
        self._file = file
        self._operations = operations
        self._send = send
        self._timeout = timeout
        self._late = late
        self._retry = retry
        self._random = random
        self._goes_over_forks = goes_over_forks
        self._on_refused = on_refused
        self._begin()
        self._start()
        follow_forks(self)

    def _begin(self) -> None:
        """Know of nothing that was delivered, and have no threads."""
        self._lock = threading.Lock()
        self._delivered = 0
        self._refused: Counter[tuple[str, str]] = Counter()
        self._outage: set[str] = set()
        self._logged: set[str] = set()
        self._failures = 0
        self._batch = _MAX_BATCH
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def _start(self) -> None:
        with self._lock:
            if self._threads or self._stopped.is_set():
                return
            self._threads = [
                threading.Thread(target=self._work, name=f"topk-bandit outbox {number}", daemon=True)
                for number in range(_CALLS)
            ]
            for thread in self._threads:
                thread.start()

    def _before_fork(self) -> None:
        """Have nobody at work on the file."""
        self._file.before_fork()

    def _after_fork(self, *, is_child: bool) -> None:
        """Go on; in a forked process with threads of its own, once it writes something."""
        self._file.after_fork(stays_behind=is_child and not self._goes_over_forks)
        if is_child:
            self._begin()

    def add_reward(
        self,
        bandit: str,
        recommendation_id: str,
        value: float,
        *,
        reward_id: str,
        final: bool,
        item_values: Mapping[str, float] = NOTHING_NAMED,
    ) -> None:
        """Write a reward to disk, and see to it soon."""
        self._file.add_reward(
            bandit, recommendation_id, value, reward_id=reward_id, final=final, item_values=item_values
        )
        self._start()
        self._woken.set()

    def add_activation(self, bandit: str, recommendation_id: str, shown: Sequence[str]) -> None:
        """Write an activation to disk, and see to it soon."""
        self._file.add_activation(bandit, recommendation_id, shown)
        self._start()
        self._woken.set()

    def status(self) -> OutboxStatus:
        """Return where the outbox stands."""
        pending, oldest = self._file.pending(), self._file.oldest()
        reasons: Counter[str] = Counter()
        with self._lock:
            for (_, reason), count in self._refused.items():
                reasons[reason] += count
            delivered = self._delivered
        return OutboxStatus(
            pending=pending,
            oldest=None if oldest is None else datetime.fromtimestamp(oldest, tz=UTC),
            delivered=delivered,
            refused=dict(reasons),
        )

    def flush(self, timeout: float) -> int:
        """Wait until nothing is left, or the time is up; return how many calls are left."""
        end = time.monotonic() + timeout
        left = self._file.pending()
        self._start()
        self._woken.set()
        while left and time.monotonic() < end and not self._stopped.is_set():
            time.sleep(_FLUSH_PAUSE_SECONDS)
            left = self._file.pending()
        return left

    def close(self) -> None:
        """End after the calls under way."""
        self._stopped.set()
        self._woken.set()
        for thread in self._threads:
            thread.join()
        self._log_loss()
        self._file.close()

    def _log_loss(self) -> None:
        with suppress(ClientError, RuntimeError):  # it may be closed already, or stay behind at a fork
            if not self._file.is_in_place and (lost := self._file.pending()):
                _log.error(
                    "the outbox's file was deleted or replaced, and with it %d rewards and activations are lost", lost
                )

    def _work(self) -> None:
        while True:
            self._woken.clear()
            if self._stopped.is_set():
                return
            try:
                pause = self._deliver_some()
            except LoopClosedError:
                return
            if pause is None:
                self._woken.wait(_LOOK_SECONDS)
            else:
                self._stopped.wait(pause)

    def _deliver_some(self) -> float | None:
        """Deliver a batch; return how many seconds to wait before the next one, None if there is nothing to deliver."""
        taken: Sequence[KeptCall] = ()
        try:
            taken = self._file.take(self._batch)
            if not taken:
                return None
            troubles = self._settle(taken, self._answers(taken))
        except LoopClosedError:
            self._put_back(taken, 0.0)
            raise
        except Exception as error:  # noqa: BLE001, a thread that ends would leave all that comes later undelivered
            self._batch = max(self._batch // 2, 1)  # a service that is slow may answer for fewer in time
            return self._note_failure(taken, error)
        self._batch = min(2 * self._batch, _MAX_BATCH)
        self._failures = 0
        if troubles:
            # Few of many may be to blame: these come again after a while, and the others are not kept waiting by them.
            calls, errors = zip(*troubles, strict=True)
            self._hold(calls, errors[0], self._retry.max_backoff)
            return self._retry.max_backoff
        self._say_it_works()
        return 0.0

    def _answers(self, taken: Sequence[KeptCall]) -> Sequence[_Answer]:
        """Send what was taken, all of one kind; return what became of it, or of as much as there was time for."""
        rewards = [one for one in taken if isinstance(one, KeptReward)]
        if rewards:
            return self._post(rewards)
        return self._activate([one for one in taken if isinstance(one, KeptActivation)])

    def _post(self, rewards: Sequence[KeptReward]) -> Sequence[_Answer]:
        operation = self._operations.kept_rewards(rewards[0].bandit, rewards)
        try:
            answers: list[_Answer] = self._send(operation, self._timeout)
        except _REFUSALS as error:
            return [error] * len(rewards)
        return [answer for _, answer in zip(rewards, answers, strict=True)]

    def _activate(self, activations: Sequence[KeptActivation]) -> Sequence[_Answer]:
        """Say of each slate that it was shown, until all have to wait, or half of a call's time is over."""
        last = time.monotonic() + self._timeout / 2.0  # so that the last call ends within the lease
        answers: list[_Answer] = []
        for one in activations:
            operation = self._operations.activate(one.bandit, one.recommendation_id, one.shown or None)
            try:
                answers.append(self._send(operation, self._timeout))
            except _HINDRANCES:
                if not answers:
                    raise
                break
            except ClientError as error:
                answers.append(error)
            if time.monotonic() > last:
                break
        return answers

    def _settle(self, taken: Sequence[KeptCall], answers: Sequence[_Answer]) -> list[tuple[KeptCall, ClientError]]:
        """Take out what was answered for; return what has to be sent again, and why."""
        again: list[tuple[KeptCall, ClientError]] = []
        ended: list[KeptCall] = []
        delivered: set[int] = set()
        for call, answer in zip(taken, answers, strict=False):
            error = self._error_of(call, answer)
            if error is not None and not _is_refusal(error):
                again.append((call, error))
                continue
            ended.append(call)
            if error is not None:
                self._refuse(call, error)
            else:
                delivered.add(call.number)
        # After its lease a call may be sent by two: it was delivered once.
        delivered &= self._file.remove(ended)
        self._put_back(taken[len(answers) :], 0.0)
        with self._lock:
            self._delivered += len(delivered)
        return again

    def _error_of(self, call: KeptCall, answer: _Answer) -> ClientError | None:
        if isinstance(answer, ClientError):
            return answer
        if answer.outcome is ActivationOutcome.LATE:
            return error_of_late_activation(call.bandit)
        if answer.outcome is not RewardOutcome.LATE:
            return None
        self._late.count(call.bandit, 1)
        return error_of_late(call.bandit, 1)

    def _refuse(self, call: KeptCall, error: ClientError) -> None:
        kind = (call.bandit, error.details.reason or error.details.code)
        with self._lock:
            self._refused[kind] += 1
            first = self._refused[kind] == 1
        if self._on_refused is not None:
            _report(self._on_refused, _refusal_of(call, error))
        elif first:
            what = "a reward" if isinstance(call, KeptReward) else "an activation"
            _log.warning("%s of %s is not taken: %s (this is said once, status() counts)", what, kind[0], error)

    def _note_failure(self, calls: Sequence[KeptCall], error: Exception) -> float:
        pause = self._retry.pause(self._failures, random=self._random)
        self._failures += 1
        self._hold(calls, error, pause)
        return pause

    def _hold(self, calls: Sequence[KeptCall], error: Exception, pause: float) -> None:
        self._say_why(error)
        self._put_back(calls, pause)

    def _say_why(self, error: Exception) -> None:
        """Log the first error of an outage, and the first of each other kind."""
        logged = self._outage if isinstance(error, _OUTAGES) else self._logged
        kind = type(error).__name__
        with self._lock:
            first = not logged if logged is self._outage else kind not in logged
            logged.add(kind)
        if first:
            _log.warning("calls wait in the outbox: %s (this is said once, status() counts them)", error)

    def _say_it_works(self) -> None:
        with self._lock:
            again = bool(self._outage)
            self._outage.clear()
        if again:
            _log.warning("the outbox delivers again")

    def _put_back(self, calls: Sequence[KeptCall], seconds: float) -> None:
        try:
            if calls:
                self._file.put_back(calls, seconds=seconds)
        except ClientError:
            _log.debug("the outbox can't be written; others may have its calls when the lease is over")


def _is_refusal(error: ClientError) -> bool:
    return isinstance(error, _REFUSALS) or error.details.reason == _FINAL_QUOTA


def _refusal_of(call: KeptCall, error: ClientError) -> Refusal:
    if isinstance(call, KeptReward):
        named = call.item_values
        return Refusal(call.bandit, call.recommendation_id, call.value, call.reward_id, error, item_values=named)
    return Refusal(call.bandit, call.recommendation_id, None, "", error, call.shown)


def _report(on_refused: Callable[[Refusal], object], refusal: Refusal) -> None:
    try:
        on_refused(refusal)
    except Exception:  # noqa: BLE001, a thread that ends would leave all that comes later undelivered
        _log.exception("on_refused failed for %s", refusal.recommendation_id)
