"""What a well-formed field is: each check takes a field's path on the wire and its value, and returns it or raises."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from topk_bandit.domain.bandits import (
    MAX_CONTEXT_DIMENSION,
    MAX_CONTEXT_MAGNITUDE,
    MAX_REWARD_MAGNITUDE,
    MAX_SLATE_SIZE,
    BanditName,
)
from topk_bandit.domain.errors import InvalidArgumentError
from topk_bandit.domain.ids import ID, ID_RULE
from topk_bandit.domain.paths import entry_of
from topk_bandit.domain.studies import StudyName
from topk_bandit.domain.values import FIRST_TIME, LAST_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.timestamp_pb2 import Timestamp

__all__ = [
    "ALL_TENANTS",
    "MAX_ITEMS",
    "bandit_name",
    "context_vector",
    "integer",
    "item_ids",
    "item_values",
    "log_position",
    "number",
    "opaque_id",
    "page_size",
    "page_token",
    "quote_text",
    "respondent",
    "reward_value",
    "secret_id",
    "sentence",
    "size",
    "study_name",
    "tenant_name",
    "tenant_of",
    "tenant_or_all",
    "time_ms",
    "to_page_token",
    "unknown_token",
]

MAX_ITEMS = 10_000

ALL_TENANTS = "tenants/*"
"""What stands for every tenant, where that can be asked for. No tenant can be named so."""

_BILLION = 10**9
_MAX_ID_LENGTH = 128
_MAX_ECHO_LENGTH = 48
_BELOW_A_TENANT = re.compile(rf"tenants/({ID.pattern})(?:/.*)?", re.DOTALL)
_TENANT = re.compile(rf"tenants/({ID.pattern})")
_BANDIT = re.compile(rf"tenants/({ID.pattern})/bandits/({ID.pattern})")
_STUDY = re.compile(rf"tenants/({ID.pattern})/studies/({ID.pattern})")
# Unicode categories Cc, Zl, Zp and Cs: all that breaks a line, a log or an encoding.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def quote_text(text: str) -> str:
    """Return `text` in quotes for an error message: escaped, and cut when it is long."""
    return repr(text) if len(text) <= _MAX_ECHO_LENGTH else f"{text[:_MAX_ECHO_LENGTH]!r}..."


def tenant_name(path: str, text: str) -> str:
    """Return the tenant's id in ``tenants/{tenant}``."""
    match = _TENANT.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(path, _name_problem(text, "tenants/{tenant}"))
    return match[1]


def tenant_or_all(path: str, text: str) -> str | None:
    """Return the tenant's id in ``tenants/{tenant}``, None for every tenant."""
    return None if text == ALL_TENANTS else tenant_name(path, text)


def tenant_of(path: str, text: str) -> str:
    """Return the tenant's id in a name that is a tenant's or begins with one."""
    match = _BELOW_A_TENANT.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(path, _name_problem(text, "tenants/{tenant}/..."))
    return match[1]


def bandit_name(path: str, text: str) -> BanditName:
    """Return the name in ``tenants/{tenant}/bandits/{bandit}``."""
    match = _BANDIT.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(path, _name_problem(text, "tenants/{tenant}/bandits/{bandit}"))
    return BanditName(tenant=match[1], bandit=match[2])


def study_name(path: str, text: str, *, below: str = "") -> StudyName:
    """Return the name in ``tenants/{tenant}/studies/{study}``, which is followed by `below`."""
    match = _STUDY.fullmatch(text.removesuffix(below)) if text.endswith(below) else None
    if match is None:
        raise InvalidArgumentError(path, _name_problem(text, f"tenants/{{tenant}}/studies/{{study}}{below}"))
    return StudyName(tenant=match[1], study=match[2])


def _name_problem(text: str, pattern: str) -> str:
    if not text:
        return f"is required, in the form {pattern}"
    return f"must be {pattern} with ids of {ID_RULE}, not {quote_text(text)}"


def opaque_id(path: str, text: str) -> str:
    """Return an item's, a recommendation's or a request's id."""
    if not text:
        raise InvalidArgumentError(path, "is required")
    if len(text) > _MAX_ID_LENGTH:
        problem = f"has {len(text)} characters; at most {_MAX_ID_LENGTH} are allowed: {quote_text(text)}"
        raise InvalidArgumentError(path, problem)
    if _CONTROL.search(text):
        raise InvalidArgumentError(path, f"holds a control character or a line separator: {quote_text(text)}")
    return text


def respondent(path: str, text: str) -> str:
    """Return who answers; empty for nobody in particular."""
    return text and secret_id(path, text)


def secret_id(path: str, text: str) -> str:
    """Return an id that no error quotes, such as a visitor's."""
    try:
        return opaque_id(path, text)
    except InvalidArgumentError:
        problem = f"must have at most {_MAX_ID_LENGTH} characters, and no control characters or line separators"
        raise InvalidArgumentError(path, problem) from None


def sentence(path: str, text: str, *, most_bytes: int) -> str:
    """Return a text that somebody reads, which may not be empty, nor longer than so many bytes of UTF-8."""
    if not 1 <= len(text.encode()) <= most_bytes:
        raise InvalidArgumentError(path, f"must have 1 to {most_bytes} bytes, not {len(text.encode())}")
    if _CONTROL.search(text):
        raise InvalidArgumentError(path, f"holds a control character or a line separator: {quote_text(text)}")
    return text


def item_ids(path: str, values: Sequence[str], *, member: str = "") -> tuple[str, ...]:
    """Return item ids that are each well-formed and all different.

    Parameters
    ----------
    path
        The repeated field.
    member
        The field of an entry that holds the id, with its dot, when the entries are messages.
    """
    if len(values) > MAX_ITEMS:
        raise InvalidArgumentError(path, f"has {len(values)} entries; at most {MAX_ITEMS} are allowed")
    ids = tuple(values)  # once, since a repeated field makes its strings anew each time that it is read
    lengths = {len(item_id) for item_id in ids}
    # All at once first: this is the hot path, and next to always there is nothing to find.
    if ids and (max(lengths) > _MAX_ID_LENGTH or 0 in lengths or _CONTROL.search("".join(ids))):
        for index, item_id in enumerate(ids):
            opaque_id(f"{path}[{index}]{member}", item_id)
    if len(set(ids)) != len(ids):
        raise _duplicate(path, ids, member)
    return ids


def _duplicate(path: str, ids: Sequence[str], member: str) -> InvalidArgumentError:
    first: dict[str, int] = {}
    index = next(i for i, item_id in enumerate(ids) if first.setdefault(item_id, i) != i)
    earlier = f"{path}[{first[ids[index]]}]{member}"
    return InvalidArgumentError(f"{path}[{index}]{member}", f"repeats {earlier}: {quote_text(ids[index])}")


def context_vector(path: str, values: Sequence[float]) -> tuple[float, ...]:
    """Return a context of at most 64 numbers of magnitude at most 1e6; it may be empty, for the bandit to judge."""
    if len(values) > MAX_CONTEXT_DIMENSION:
        raise InvalidArgumentError(path, f"has {len(values)} numbers; at most {MAX_CONTEXT_DIMENSION} are allowed")
    context = tuple(values)
    for index, value in enumerate(context):
        if not -MAX_CONTEXT_MAGNITUDE <= value <= MAX_CONTEXT_MAGNITUDE:
            number(f"{path}[{index}]", value, low=-MAX_CONTEXT_MAGNITUDE, high=MAX_CONTEXT_MAGNITUDE)
    return context


def number(path: str, value: float, *, low: float, high: float) -> float:
    """Return a number in [low, high]; NaN is in no range."""
    if not low <= value <= high:
        raise InvalidArgumentError(path, f"must be a finite number from {low:g} to {high:g}, not {value!r}")
    return value


def reward_value(path: str, value: float | None) -> float:
    """Return a reward; None stands for a field that is not set."""
    if value is None:
        raise InvalidArgumentError(path, "is required; 0 has to be set like any other value")
    return number(path, value, low=-MAX_REWARD_MAGNITUDE, high=MAX_REWARD_MAGNITUDE)


def item_values(path: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return values of items by their ids; each is as a reward is."""
    if "" in values:
        raise InvalidArgumentError(path, "has an empty text where an item's id is required")
    if len(values) > MAX_SLATE_SIZE:
        raise InvalidArgumentError(path, f"has {len(values)} entries; at most {MAX_SLATE_SIZE} are allowed")
    return {
        opaque_id(path, item_id): reward_value(entry_of(path, item_id), value) + 0.0
        for item_id, value in sorted(values.items())  # maps of messages have another order each time
    }


def integer(path: str, value: int, *, low: int, high: int) -> int:
    """Return an integer in [low, high]."""
    if not low <= value <= high:
        raise InvalidArgumentError(path, f"must be an integer from {low} to {high}, not {value}")
    return value


def time_ms(path: str, time: Timestamp, *, hint: str = "") -> int:
    """Return a time of this century in milliseconds since 1970; a hint ends the error's sentence."""
    if FIRST_TIME.timestamp() <= time.seconds < LAST_TIME.timestamp() and 0 <= time.nanos < _BILLION:
        return time.seconds * 1000 + time.nanos // 1_000_000
    try:
        got = time.ToJsonString()
    except ValueError:
        got = f"{time.seconds} seconds and {time.nanos} nanoseconds since 1970"
    raise InvalidArgumentError(path, f"expected a time of {FIRST_TIME:%Y} to {LAST_TIME:%Y}, got {got}{hint}")


def log_position(path: str, value: int) -> int:
    """Return a position in a log; 0 stands for none."""
    if value < 0:
        raise InvalidArgumentError(path, f"must not be negative, but is {value}")
    return value


def size(path: str, count: int, *, most: int) -> int:
    """Return the length of a repeated field that must not be empty."""
    if not count:
        raise InvalidArgumentError(path, "must not be empty")
    if count > most:
        raise InvalidArgumentError(path, f"has {count} entries; at most {most} are allowed")
    return count


def page_size(path: str, value: int, *, default: int, most: int) -> int:
    """Return how many entries a page has: `default` for zero, never more than `most`."""
    if value < 0:
        raise InvalidArgumentError(path, f"must not be negative, but is {value}")
    return min(value or default, most)


def to_page_token(last_id: str) -> str:
    """Return the token of the page that starts after `last_id`."""
    return base64.urlsafe_b64encode(last_id.encode()).decode().rstrip("=")


def page_token(path: str, token: str) -> str:
    """Return the id after which a page starts; empty for the first page."""
    if not token:
        return ""
    try:
        last_id = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
        opaque_id(path, last_id)
        known = to_page_token(last_id) == token
    except (ValueError, InvalidArgumentError):
        known = False
    if not known:
        raise unknown_token(path, token)
    return last_id


def unknown_token(path: str, token: str) -> InvalidArgumentError:
    """Return the error of a token, or a cursor, that names no page."""
    problem = f"is nothing that this service gave out, got {quote_text(token)}: leave it out to begin at the first page"
    return InvalidArgumentError(path, problem)
