"""Links of studies between the wire and `topk_bandit.domain.studies`; see `topk_bandit.rpc.converters`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from topk_bandit.domain.errors import InvalidArgumentError, errors_below
from topk_bandit.domain.studies import DEFAULT_ANSWERS_EACH, MAX_ANSWERS_EACH, MAX_BUDGET, LinkSettings
from topk_bandit.rpc import fields, study_texts
from topk_bandit.rpc.study_converters import given_answer
from topk_bandit.v1 import preference_service_pb2 as pb
from topk_bandit.wire.studies import LINK, LINK_PAGE, LINK_STATES, LINK_TEXTS

if TYPE_CHECKING:
    from topk_bandit.domain.studies import GivenAnswer, LinkPage, LinkState, StudyLink, StudyName

__all__ = [
    "LinkCall",
    "link_answer",
    "link_creation",
    "link_named",
    "link_questions",
    "link_to_proto",
    "page_to_proto",
]

_MAX_THANKS_BYTES = 500
_MAX_QUESTIONS = 10
_LEAST_CONTRAST = 4.5
_COLOR = re.compile("#[0-9a-fA-F]{6}")


class LinkCall(NamedTuple):
    """Who calls through a link: a device's name, empty for a new one, with the token that it shows."""

    study: StudyName
    token: str
    respondent: str


def link_creation(request: pb.CreateLinkRequest) -> tuple[StudyName, LinkSettings]:
    """Return what a CreateLink makes."""
    name, link = fields.study_name("study", request.study), request.link
    if not link.HasField("expire_time"):
        raise InvalidArgumentError("link.expire_time", "is required")
    each = link.answers_each or DEFAULT_ANSWERS_EACH
    settings = LinkSettings(
        most_answers=fields.integer("link.most_answers", link.most_answers, low=1, high=MAX_BUDGET),
        answers_each=fields.integer("link.answers_each", each, low=1, high=MAX_ANSWERS_EACH),
        expire_ms=fields.time_ms("link.expire_time", link.expire_time),
        title=study_texts.title("link.title", link.title),
        thanks=study_texts.text("link.thanks", link.thanks, most_bytes=_MAX_THANKS_BYTES),
        accent_color=_color("link.accent_color", link.accent_color),
        background_color=_color("link.background_color", link.background_color),
        text_color=_color("link.text_color", link.text_color),
    )
    _check_contrast(settings)
    return name, settings


def link_named(request: pb.RevokeLinkRequest) -> tuple[StudyName, str]:
    """Return which link a RevokeLink ends."""
    return fields.study_name("study", request.study), fields.opaque_id("link_id", request.link_id)


def link_to_proto(link: StudyLink, state: LinkState) -> pb.StudyLink:
    """Return a link as operators see it."""
    return LINK.write(link, state=LINK_STATES.write(state), **LINK_TEXTS.fields(link.settings))


def link_questions(request: pb.GetLinkQuestionsRequest) -> tuple[LinkCall, int]:
    """Return who asks for questions, and for how many."""
    count = fields.integer("count", request.count or 1, low=1, high=_MAX_QUESTIONS)
    return LinkCall(fields.study_name("study", request.study), request.token, request.respondent), count


def page_to_proto(page: LinkPage) -> pb.GetLinkQuestionsResponse:
    """Return what a device shows: of the link its texts and colors alone."""
    settings = LINK_TEXTS.fields(page.link.settings)
    for unseen in ("most_answers", "expire_time"):
        del settings[unseen]
    response = LINK_PAGE.write(page, link=pb.StudyLink(**settings))
    for question in response.questions:
        for item in question.items:
            item.ClearField("features")
    return response


def link_answer(request: pb.SubmitLinkAnswerRequest) -> tuple[LinkCall, tuple[str, GivenAnswer | None]]:
    """Return who answers, and what."""
    name = fields.study_name("study", request.study)
    if request.answer.respondent:
        raise InvalidArgumentError("answer.respondent", "must be empty: the device is named beside the answer")
    question_id = fields.opaque_id("answer.question_id", request.answer.question_id)
    with errors_below("answer"):
        given = given_answer(request.answer)
    return LinkCall(name, request.token, request.respondent), (question_id, given)


def _color(path: str, text: str) -> str:
    if text and not _COLOR.fullmatch(text):
        raise InvalidArgumentError(path, f"must be #rrggbb, not {fields.quote_text(text)}")
    return text.lower()


def _check_contrast(settings: LinkSettings) -> None:
    """Refuse colors in which people could not read; the page has its own color on buttons."""
    background, text = settings.background_color, settings.text_color
    if bool(background) != bool(text):
        raise InvalidArgumentError("link.text_color", "goes together with background_color: give both or none")
    if not background:
        return
    dark, light = sorted(map(_luminance, (background, text)))
    contrast = (light + 0.05) / (dark + 0.05)
    if contrast < _LEAST_CONTRAST:
        problem = f"has a contrast of {contrast:.1f} to background_color; {_LEAST_CONTRAST} are needed to read it"
        raise InvalidArgumentError("link.text_color", problem)


def _luminance(color: str) -> float:
    """Return the relative luminance of a color, by WCAG 2."""
    parts = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
