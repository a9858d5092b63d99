"""Which class of durability the writes of a bandit need, as far as this worker knows.

A bandit's settings may have a class of their own. Each write that is acknowledged asks for it on the way, so that what
is known here is only a guess at what to wait for: a write whose class turns out to be stronger is waited for again.
"""

from __future__ import annotations

from topk_bandit.domain.durability import Durability
from topk_bandit.domain.errors import CorruptDataError

__all__ = ["Classes"]

_MOST_KNOWN = 100_000


class Classes:
    """What is known of bandits whose class is not the service's, by the key that has it.

    Parameters
    ----------
    default
        The service's class.
    """

    def __init__(self, default: Durability) -> None:
        self.default = default
        self._known: dict[str, Durability] = {}

    def expect(self, key: str) -> Durability:
        """Return the class that the writes of a bandit probably need."""
        return self._known.get(key, self.default)

    def note(self, key: str, reply: object) -> Durability:
        """Return the class that they need by the store's reply, and remember it.

        Raises
        ------
        CorruptDataError
            The reply is no class.
        TopkBanditError
            The reply is this error.
        """
        if isinstance(reply, Exception):
            raise reply
        if not reply:
            self._known.pop(key, None)
            return self.default
        try:
            required = Durability.parse(bytes(reply).decode()) if isinstance(reply, bytes) else self.default
        except ValueError as error:
            raise CorruptDataError(f"{key} has the unknown durability {reply!r}") from error
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = required
        return required
