"""JSON that is understood wholly: no key twice, no half characters, no numbers without end."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["JsonError", "may_vanish", "parse_float", "parse_json"]


class JsonError(ValueError):
    """A text is no JSON, or not clearly one thing; the message follows the name of a field."""


def parse_json(text: str | bytes, *, takes_nan: bool = False) -> Any:  # noqa: ANN401, whatever JSON holds
    """Return what a text of JSON holds.

    Parameters
    ----------
    takes_nan
        Whether NaN and Infinity are read, which are no JSON, but which Python writes.

    Raises
    ------
    JsonError
        It is no JSON or not UTF-8, nests too deeply, has a key twice, half of a character, or a number that vanishes.
    """
    try:
        text = (text.decode() if isinstance(text, bytes) else text).removeprefix("\ufeff")
        found = _DECODERS[takes_nan, may_vanish(text)].decode(text)
        if _ESCAPE in text and _HALF in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except JsonError:
        raise
    except RecursionError:
        raise JsonError("is JSON inside JSON, too deep to be read") from None
    except UnicodeDecodeError:
        raise JsonError("is not UTF-8: write it in UTF-8") from None
    except UnicodeEncodeError:
        raise JsonError("has half of a character") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"is no JSON: {error}") from None
    except ValueError:
        raise JsonError("has a number of too many digits") from None
    return found


def may_vanish(text: str) -> bool:
    """Return whether JSON may have a number other than 0 that is so small that a float is 0."""
    return _ZEROS in text or (("e-" in text or "E-" in text) and _TINY.search(text) is not None)


_ZEROS = "0" * 200
_TINY = re.compile(r"[eE]-[0-9]{3}")

_ESCAPE, _HALF = "\\u", "\\ud"
"""How half a character may be written, which no text can hold."""


def _refuse(constant: str) -> None:
    raise JsonError(f"has {constant}, which is no number of JSON")


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set[str]()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise JsonError(f"has the key {twice!r:.60} twice: leave one of them out")
    return found


def parse_float(text: str) -> float:
    """Return a number of JSON; `JsonError` is raised for one other than 0 that is so small that a float is 0."""
    number = float(text)
    if number == 0.0 and not _ZERO.fullmatch(text):
        raise JsonError(f"has {text:.60}, which would be read as 0: write 0")
    return number


_ZERO = re.compile(r"-?[0.]+(?:[eE].*)?")


def _decoder(*, takes_nan: bool, checks_floats: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_without_repetition,
        parse_constant=None if takes_nan else _refuse,
        parse_float=parse_float if checks_floats else None,
    )


# One decoder for all texts of a kind: to make one takes as long as to read a short text.
_DECODERS = {
    (takes_nan, checks_floats): _decoder(takes_nan=takes_nan, checks_floats=checks_floats)
    for takes_nan in (False, True)
    for checks_floats in (False, True)
}
