"""Single values as files and JSON have them: which are missing, and what number, text, boolean, time or list each is.

All readers take a value here, so that it is the same for all of them. What is not clearly of its kind is refused: a
reader never guesses. Each function raises ``ValueError`` with a problem that follows the name of a field.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

from topk_bandit.domain.json_text import JsonError, parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FIRST_TIME",
    "LAST_TIME",
    "MISSING_MARKS",
    "MISSING_WORDS",
    "Cell",
    "PointCell",
    "RoundedFloat",
    "is_missing",
    "list_hint",
    "read_boolean",
    "read_bounded",
    "read_label",
    "read_list",
    "read_number",
    "read_text",
    "read_time",
    "shorten",
]

FIRST_TIME, LAST_TIME = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Times before and after these are mistakes: empty dates, other units, years as numbers."""

SEPARATOR = "|"
"""Between the parts of a list in one text."""

MISSING_MARKS = frozenset({"\\N", "<NA>"})
"""What databases and pandas write into a cell of CSV where there is no value, whatever its kind."""

MISSING_WORDS = frozenset({"na", "n/a", "#n/a", "nan", "nat", "null", "none", *map(str.lower, MISSING_MARKS)})
"""What programs write where there is no number, time or boolean. As texts these are words like others."""

_BOOLEANS = {"true": True, "false": False, "yes": True, "no": False, "t": True, "f": False, "y": True, "n": False}

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ZERO = re.compile(r"[+-]?[0.]+(?:[eE].*)?")
_LONGEST_NUMBER = 400
_COMMA = re.compile(r"[+-]?[0-9][0-9.]*,[0-9]+")
_POINTS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+")
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:[,' _\u00a0\u2009\u202f][0-9]{3})+(?:\.[0-9]+)?")
_AMOUNT = r"[0-9]+(?:[.,][0-9]+)?"
_CURRENCY = r"(?:[^\W\d_]|[$\u00a2-\u00a5\u20a0-\u20cf\u00b0. ])"
_DASHES = "\u2010-\u2015\u2212\ufe63\uff0d"
_NUMBER_HINTS = (
    (re.compile(r"true|false", re.IGNORECASE), "write 1 for true, and 0 for false"),
    (re.compile(r"#[A-Z/0-9]+[!?]|[-.?\u2013\u2014]+"), "write nothing where there is no number"),
    (_COMMA, "write a decimal point, and no separators of thousands"),
    (_THOUSANDS, "write no separators of thousands"),
    (_POINTS, "write no separators of thousands"),
    (re.compile(rf"[+-]?{_AMOUNT}\s*%"), "leave out the sign, in all rows alike: 70% is 70 or 0.7"),
    (
        re.compile(rf"\(\s*{_CURRENCY}{{0,4}}{_AMOUNT}{_CURRENCY}{{0,4}}\s*\)|{_AMOUNT}\s*-|[{_DASHES}]\s*{_AMOUNT}"),
        "write a number below 0 with the sign - before its digits, such as -1.5",
    ),
    (re.compile(rf"[+-]?{_AMOUNT}\s*(?:[kKM]|Tsd\.?|Mio\.?|Mrd\.?|mn|bn)"), "write all digits, such as 1500 for 1.5k"),
    (re.compile(rf"'[+-]?{_AMOUNT}"), "leave out the apostrophe"),
    (re.compile(r"[+-]?(?=.*[^\x00-\x7f])[\d.,]+"), "write the digits 0 to 9"),
    (re.compile(rf"[+-]?{_CURRENCY}{{0,4}}[+-]?{_AMOUNT}{_CURRENCY}{{0,12}}(?:\.-)?"), "leave out the unit"),
)
"""Numbers as people write them, with what to write instead."""
_ZONE = r"(?:\ ?(?:Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?))?"
_TIME = re.compile(
    rf"""[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} (?:[T\ ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:[.,][0-9]+)?)?{_ZONE})?
    | [0-9]{{8}} (?:T[0-9]{{4}}(?:[0-9]{{2}}(?:[.,][0-9]+)?)?{_ZONE})?""",
    re.VERBOSE,
)
_COMPACT = re.compile(r"[0-9]{8}")
_OTHER_DATE = re.compile(r"(?:[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}|[0-9]{4}[./][0-9]{1,2}[./][0-9]{1,2})(?:\s.*)?")
_OTHER_LIST = re.compile(
    r"\{.*\}|(?:c|set|frozenset|array|list|tuple|seq|vector|WrappedArray|ArrayBuffer)?\([^()]*\)|array\[.*\]",
    re.DOTALL | re.IGNORECASE,
)
"""Lists as databases and languages write them."""

_LIST_HINT = ": write its parts as a|b, or as a list of JSON"

_EXACT = 2.0**53
"""Whole numbers above this may have lost digits on their way through a floating-point number."""

_SECONDS = FIRST_TIME.timestamp(), LAST_TIME.timestamp()
_MILLI = 1000.0
_SPREADSHEET_BEGINS = datetime(1899, 12, 30, tzinfo=UTC)
"""Day 0 of the dates of spreadsheets, whose calendar has a 29 February 1900."""

_LONGEST_SHOWN = 60

_UNSEEN = "\ufeff\u200b\u2060"
"""Characters without a width that programs leave around a text: byte order marks, and places to break a line."""

_DAMAGE = {"\0": "a NUL, which no text has", "\ufffd": "U+FFFD, which stands where a character was lost"}

_ALSO_TYPED = re.compile(r"(?P<whole>[+-]?[0-9]+)\.0+|True|TRUE|False|FALSE")
"""Cells whose text would be another one if they were numbers or booleans, as pandas and R write those."""

_DECIMAL = (float, Decimal)
_NUMBERS = (*_DECIMAL, int, Real)
"""In the order in which most values are found: asking an abstract class takes ten times as long."""


class Cell(str):
    """A text of CSV, in which numbers, booleans and texts are written alike."""

    __slots__ = ()


class RoundedFloat(float):
    """A number so large that the short float which it was may have lost digits: it says no text, and no time."""

    __slots__ = ()


class PointCell(Cell):
    """A cell of a column of CSV in which a point may separate thousands."""

    __slots__ = ()


def shorten(value: object) -> str:
    """Return a value as messages show it."""
    return f"{value!r:.{_LONGEST_SHOWN}}"


def is_missing(value: object) -> bool:
    """Return whether a value says nothing: null, not a number, or a text of nothing but blanks."""
    if isinstance(value, str):
        return not value or value.isspace()
    return value is None or (math.isnan(value) if isinstance(value, _DECIMAL) else value == b"")


def read_number(value: Any) -> float | None:  # noqa: ANN401, whatever a file has
    """Return a finite number; None if it is missing.

    Texts are decimal numbers in ASCII. Booleans are no numbers.
    """
    number = _number_in(value) if isinstance(value, str) else _as_float(value)
    if number is not None and math.isfinite(number):
        return number
    if _is_no_value(value):
        return None
    raise ValueError(f"expected a finite number, got {shorten(value)}{_number_hint(value)}")


def read_bounded(value: Any, most: float, *, remedy: str = "") -> float | None:  # noqa: ANN401, whatever a file has
    """Return a finite number that is at most so far from zero; None if it is missing. A remedy is for larger ones."""
    number = read_number(value)
    if number is not None and abs(number) > most:
        raise ValueError(f"expected a finite number from {-most:g} to {most:g}, got {shorten(value)}{remedy}")
    return number


def read_text(value: Any) -> str | None:  # noqa: ANN401, whatever a file has
    """Return a text; None if it is missing.

    A number stands for its digits, and a whole one has no decimal point; a boolean is "true" or "false". Bytes, as some
    write texts to Parquet, stand for their text in UTF-8. A cell of CSV that may be a number or a boolean, and whose
    text would then be another one, is refused.
    """
    if isinstance(value, str) and value.isascii() and value.strip():
        return value if type(value) is str else _bare_text(value)
    if is_missing(value):
        return None
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() | Decimal():
            return _digits(value)
        case bytes() | str():
            return _unicode(value)
    hint = ": write it as a text" if isinstance(value, date) else ""
    raise ValueError(f"expected a text, got {shorten(value)}{hint}")


def _bare_text(cell: str) -> str:
    """Return the text of a cell that is nothing else."""
    if found := _ALSO_TYPED.fullmatch(cell):
        kind, written = ("number", found["whole"]) if found["whole"] else ("boolean", cell.lower())
        if type(cell) is PointCell and _POINTS.fullmatch(cell):
            written += f" or {cell.replace('.', '')}"
        problem = f"may be a {kind}: write {written}, or write JSON Lines, in which the text {cell!r} has quotes"
        raise ValueError(f"expected a text, got {cell!r}, which {problem}")
    return str(cell)


def read_label(value: Any) -> str | None:  # noqa: ANN401, whatever a file has
    """Return the text of an id, a category or a label in a file; None if it is missing.

    It is read as by `read_text`, and has no blanks around it: in CSV they are layout. Nor has it characters around it
    that nobody sees, or any that says that it was damaged.
    """
    if type(value) is str and value.isascii() and value.isprintable() and value.strip() == value != "":
        return value
    text = read_text(value)
    if text is None:
        return None
    if (bare := text.strip()) != text:
        raise ValueError(f"expected a text without blanks around it, got {shorten(text)}: write {shorten(bare)}")
    if (bare := text.strip(_UNSEEN)) != text:
        problem = f"expected a text without characters around it that nobody sees, got {ascii(text)[:60]}"
        raise ValueError(f"{problem}: write {shorten(bare)}")
    for character, what in _DAMAGE.items():
        if character in text:
            raise ValueError(f"expected a text, got {shorten(text)}: it has {what}")
    return text


def read_boolean(value: Any) -> bool | None:  # noqa: ANN401, whatever a file has
    """Return true or false, also for yes and no, or 1 and 0; None if it is missing."""
    if isinstance(value, bool):
        return value
    if _is_no_value(value):
        return None
    if isinstance(value, str) and (found := _BOOLEANS.get(value.strip().lower())) is not None:
        return found
    number = _number_in(value) if isinstance(value, str) else _as_float(value)
    if number not in {0.0, 1.0}:
        raise ValueError(f"expected true or false, got {shorten(value)}: write true or false")
    return number == 1.0


def read_time(value: Any, *, of_spreadsheet: bool = False) -> datetime | None:  # noqa: ANN401, whatever a file has
    """Return a time in UTC; None if it is missing.

    Times are those of ISO 8601, also in the short form 20260131T120000Z, and without a zone they are of UTC. Numbers
    are seconds or milliseconds since 1970, whichever is a time between 2000 and 2100; 20260131 is a day.

    Parameters
    ----------
    of_spreadsheet
        Whether numbers are days since the end of 1899, as spreadsheets have them.
    """
    if not (isinstance(value, str) and value[:1].isdigit()) and _is_no_value(value):
        return None
    try:
        time = _spreadsheet_time(value) if of_spreadsheet else None
        time = time or _time_in(value)
        if time is not None:
            aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            if FIRST_TIME <= aware < LAST_TIME:
                return aware if aware.tzinfo is UTC else aware.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    expected = "a time of 2000 to 2100 such as 2026-01-31T12:00:00Z, or seconds or milliseconds since 1970"
    raise ValueError(f"expected {expected}, got {shorten(value)}{_time_hint(value)}")


def read_list(value: Any) -> list[Any] | None:  # noqa: ANN401, whatever a file has
    """Return the parts of a list; None if it is missing.

    A text is a list of JSON in brackets, or has its parts between ``|``. No part may be missing. A text that looks like
    a list in another writing, such as ``{a,b}``, is refused.
    """
    if is_missing(value):
        return None
    parts = _parts_of(value) if isinstance(value, str) else value
    found = list(parts) if isinstance(parts, list | tuple) else None
    if found is None:
        raise ValueError(f"expected a list, got {shorten(value)}{_LIST_HINT if isinstance(value, str) else ''}")
    if any(map(is_missing, found)):
        place = next(place for place, part in enumerate(found, start=1) if is_missing(part))
        raise ValueError(f"part {place} of the list is missing: {shorten(value)}")
    return found


def list_hint(parts: Sequence[object]) -> str:
    """Return how to write a list, for one whose only part looks like several; else nothing."""
    return _LIST_HINT if len(parts) == 1 and isinstance(parts[0], str) and re.search("[,;]", parts[0]) else ""


def _is_no_value(value: object) -> bool:
    return is_missing(value) or (isinstance(value, str) and value.strip().lower() in MISSING_WORDS)


def _number_in(text: str) -> float | None:
    """Return the number in a text; None if there is none for sure."""
    bare = text.strip()
    if len(bare) > _LONGEST_NUMBER or not _NUMBER.fullmatch(bare):
        return None
    number = float(bare)
    if not number and not _ZERO.fullmatch(bare):
        return None
    return None if type(text) is PointCell and _POINTS.fullmatch(bare) else number


def _number_hint(value: object) -> str:
    """Return what to write instead of a text that is no number for sure."""
    text = str(value).strip() if isinstance(value, str | bool) else ""
    if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text):
        if type(value) is PointCell and _POINTS.fullmatch(text):
            bare = text.replace(".", "")
            return f": write {bare} if the point separates thousands, or {text}0 if it is a decimal point"
        return ": it would be read as 0, so write 0" if not float(text) else ": it is too large"
    return next((f": {hint}" for form, hint in _NUMBER_HINTS if form.fullmatch(text)), "")


def _time_hint(value: object) -> str:
    """Return what to write instead of a text that is no time for sure."""
    text = value.strip() if isinstance(value, str) else ""
    if _OTHER_DATE.fullmatch(text):
        return ": write the year, the month and the day, such as 2026-01-31"
    is_number = _COMMA.fullmatch(text) or (type(value) is PointCell and _POINTS.fullmatch(text))
    return _number_hint(value) if is_number else ""


def _as_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _digits(value: float | Decimal) -> str:
    if isinstance(value, RoundedFloat) or (isinstance(value, float) and abs(value) >= _EXACT):
        raise ValueError(f"expected a text, got {shorten(value)}: a number so large has lost digits")
    if not math.isfinite(value):
        raise ValueError(f"expected a text, got {shorten(value)}")
    if value == int(value):
        return str(int(value))
    return f"{Decimal(repr(value)) if isinstance(value, float) else value.normalize():f}"


def _unicode(value: str | bytes) -> str:
    try:
        text = value.decode() if isinstance(value, bytes) else str(value)
        text.encode()
    except UnicodeError:
        raise ValueError(f"expected a text of Unicode, got {shorten(value)}") from None
    return text


def _time_in(value: object) -> datetime | None:
    match value:
        case datetime():
            return value
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case RoundedFloat():
            return None
        case str():
            text = value.strip().upper()
            if _TIME.fullmatch(text):
                return datetime.fromisoformat(text.replace("UTC", "Z").replace(" Z", "Z").replace(" +", "+"))
            number = _number_in(value)
        case _:
            number = _as_float(value)
            if number is not None and number == int(number) and _COMPACT.fullmatch(str(int(number))):
                return datetime.fromisoformat(str(int(number)))
    return None if number is None else _since_1970(number)


def _since_1970(number: float) -> datetime | None:
    for unit in (1.0, _MILLI):
        if _SECONDS[0] <= number / unit < _SECONDS[1]:
            return datetime.fromtimestamp(number / unit, UTC)
    return None


def _spreadsheet_time(value: object) -> datetime | None:
    number = _number_in(value) if isinstance(value, str) else _as_float(value)
    return None if number is None else _SPREADSHEET_BEGINS + timedelta(days=number)


def _parts_of(text: str) -> Any:  # noqa: ANN401, whatever JSON has
    """Return the parts of a list in a text, those of a cell as cells; None for another writing."""
    bare, kind = text.strip(), type(text)
    if _OTHER_LIST.fullmatch(bare):
        return None
    if not bare.startswith("["):
        parts = [part.strip() for part in bare.split(SEPARATOR)]
        return parts if kind is str else ["" if part in MISSING_MARKS else kind(part) for part in parts]
    try:
        return parse_json(bare)
    except JsonError:
        return None
