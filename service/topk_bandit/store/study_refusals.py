"""The errors with which a store of studies refuses a call, by the word that its scripts answer with.

Every store raises these, so that a caller never sees which store it talks to. Nothing here decides whether to refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_bandit.domain.errors import ConflictError, ExhaustedError, NotFoundError, NotReadyError, TopkBanditError
from topk_bandit.domain.quotas import Quota
from topk_bandit.store.refusals import quota_refusal
from topk_bandit.store.study_log import MOST_IMPORTED, MOST_LINKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.domain.studies import StudyName

__all__ = ["STUDY_REFUSALS", "study_refusal"]


STUDY_REFUSALS: Mapping[str, Callable[[StudyName, str], TopkBanditError]] = {
    "arrival_replaced": lambda name, _: ConflictError(
        "ARRIVAL_REPLACED", f"another import into {name} has begun, or this one went on"
    ),
    "arrived": lambda name, _: ConflictError("STUDY_ARRIVED", f"{name} exists: an import makes its study anew"),
    "design_cancelled": lambda name, _: NotReadyError(
        "DESIGN_CANCELLED", f"the design of {name} was cancelled; create the study again"
    ),
    "design_designing": lambda name, _: NotReadyError(
        "DESIGN_UNFINISHED", f"the design of {name} is not done; wait for its operation"
    ),
    "design_failed": lambda name, _: NotReadyError(
        "DESIGN_FAILED", f"the design of {name} failed; its operation says why"
    ),
    "no_study": lambda name, _: NotFoundError(str(name)),
    "request_id_reused": lambda *_: ConflictError("REQUEST_ID_REUSED", "the request id was used with another count"),
    "study_attempts": lambda name, most: ExhaustedError(
        "STUDY_ATTEMPTS", f"the design of {name} was tried {most} times; delete the study", retry_after=None
    ),
    "study_budget": lambda name, budget: ExhaustedError(
        "STUDY_BUDGET", f"{name} has asked as many questions as its budget of {budget} allows", retry_after=None
    ),
    "left": lambda name, _: NotReadyError(
        "STUDY_DAMAGED", f"the store has lost the record of {name} and not the rest of it: delete that first"
    ),
    "study_exists": lambda name, _: ConflictError("STUDY_EXISTS", f"{name} exists with other settings"),
    "study_full": lambda name, text: quota_refusal(Quota.STUDIES, name.tenant, text),
    "study_imported": lambda name, _: ExhaustedError(
        "STUDY_IMPORTED", f"{name} takes at most {MOST_IMPORTED} answers that were given elsewhere", retry_after=None
    ),
    "study_links": lambda name, _: ExhaustedError(
        "STUDY_LINKS",
        f"{name} has {MOST_LINKS} links, revoked ones included, which is as many as may be",
        retry_after=None,
    ),
}
"""By the word that the scripts answer with."""


def study_refusal(word: str, name: StudyName, detail: object = "") -> TopkBanditError:
    """Return the error for a refusal; `detail` has the numbers that it is about."""
    return STUDY_REFUSALS[word](name, str(detail))
