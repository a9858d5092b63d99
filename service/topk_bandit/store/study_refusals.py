"""The errors with which a store of studies refuses a call, by the word that its scripts answer with.

Every store raises these, so that a caller never sees which store it talks to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConflictError, ExhaustedError, NotFoundError, NotReadyError, TopkBanditError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.domain.studies import StudyName

__all__ = ["STUDY_REFUSALS", "study_refusal"]


def _exists(name: StudyName, _: str) -> TopkBanditError:
    return ConflictError("STUDY_EXISTS", f"{name} exists with other settings")


def _quota(name: StudyName, quota: str) -> TopkBanditError:
    return ExhaustedError("STUDY_QUOTA", f"tenants/{name.tenant} has its quota of {quota} studies", retry_after=None)


def _attempts(name: StudyName, most: str) -> TopkBanditError:
    problem = f"the design of {name} was tried {most} times; delete the study"
    return ExhaustedError("STUDY_ATTEMPTS", problem, retry_after=None)


def _budget(name: StudyName, budget: str) -> TopkBanditError:
    problem = f"{name} has asked as many questions as its budget of {budget} allows"
    return ExhaustedError("STUDY_BUDGET", problem, retry_after=None)


def _reused(_: StudyName, __: str) -> TopkBanditError:
    return ConflictError("REQUEST_ID_REUSED", "the request id was used with another count")


def _unfinished(name: StudyName, _: str) -> TopkBanditError:
    return NotReadyError("DESIGN_UNFINISHED", f"the design of {name} is not done; wait for its operation")


def _cancelled(name: StudyName, _: str) -> TopkBanditError:
    return NotReadyError("DESIGN_CANCELLED", f"the design of {name} was cancelled; create the study again")


def _failed(name: StudyName, _: str) -> TopkBanditError:
    return NotReadyError("DESIGN_FAILED", f"the design of {name} failed; its operation says why")


STUDY_REFUSALS: Mapping[str, Callable[[StudyName, str], TopkBanditError]] = {
    "design_cancelled": _cancelled,
    "design_designing": _unfinished,
    "design_failed": _failed,
    "no_study": lambda name, _: NotFoundError(str(name)),
    "request_id_reused": _reused,
    "study_attempts": _attempts,
    "study_budget": _budget,
    "study_exists": _exists,
    "study_full": _quota,
}
"""By the word that the scripts answer with."""


def study_refusal(word: str, name: StudyName, detail: object = "") -> TopkBanditError:
    """Return the error for a refusal; `detail` is the number that it is about."""
    return STUDY_REFUSALS[word](name, str(detail))
