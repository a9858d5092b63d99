"""The interfaces of an HTTP server: all calls with their pages, or the console and the calls that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topk_bandit.rpc.documents import documents, documents_of_console, documents_with_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topk_bandit.rpc.documents import Document

__all__ = ["CALLS", "CALLS_AND_PAGE", "CONSOLE", "CONSOLE_WITH_CHANGES", "HttpInterface"]


@dataclass(frozen=True, slots=True)
class HttpInterface:
    """The pages and calls that one HTTP server has.

    Attributes
    ----------
    documents
        Returns what there is to read, by path.
    paths
        The methods that are served; None for all.
    """

    documents: Callable[[], Mapping[str, Document]]
    paths: frozenset[str] | None = None

    def serves(self, path: str) -> bool:
        """Return whether a method is served."""
        return self.paths is None or path in self.paths


CALLS = HttpInterface(documents)
CALLS_AND_PAGE = HttpInterface(documents_with_page)

# All of them only look: whoever reaches the console alone changes nothing.
CONSOLE = HttpInterface(
    documents_of_console,
    frozenset(
        {
            "/topk_bandit.v1.BanditService/GetBandit",
            "/topk_bandit.v1.BanditService/GetBanditStats",
            "/topk_bandit.v1.OperatorService/ExplainRecommendation",
            "/topk_bandit.v1.OperatorService/ExportEvents",
            "/topk_bandit.v1.OperatorService/GetBanditHistory",
            "/topk_bandit.v1.OperatorService/GetServiceStatus",
            "/topk_bandit.v1.OperatorService/ListBanditOverviews",
            "/topk_bandit.v1.OperatorService/ListTopSlates",
            "/topk_bandit.v1.PreferenceService/GetPreferences",
            "/topk_bandit.v1.PreferenceService/ListLinks",
            "/topk_bandit.v1.PreferenceService/ListStudies",
        }
    ),
)

# And where callers are known, those of them that may can change a bandit's rules, and make and end links of studies.
CONSOLE_WITH_CHANGES = HttpInterface(
    documents_of_console,
    frozenset(
        {
            *(CONSOLE.paths or ()),
            "/topk_bandit.v1.BanditService/UpdateBandit",
            "/topk_bandit.v1.PreferenceService/CreateLink",
            "/topk_bandit.v1.PreferenceService/RevokeLink",
        }
    ),
)
