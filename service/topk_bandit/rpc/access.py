"""Who may call what: the scope of each method, the tenant of each message, and the audit log.

A call's key, or the certificate of its connection, and its scope are checked before the message is parsed. Its tenant
is checked right after that, before anything is done or returned. Health and reflection, which return nothing of any
tenant, are for everybody.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from topk_bandit.domain.access import EVERY_TENANT, Key, Scope
from topk_bandit.domain.errors import ForbiddenError, InvalidArgumentError, UnauthenticatedError
from topk_bandit.rpc import fields
from topk_bandit.rpc.identities import names_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from google.protobuf.message import Message

    from topk_bandit.rpc.identities import AuthContext, Identities
    from topk_bandit.rpc.keys import KeyRing

    Metadata = Iterable[tuple[str, str | bytes]]

__all__ = [
    "AUDIT_LOGGER",
    "LONGEST_NAME",
    "MOST_FROM_PEOPLE",
    "RULES",
    "Access",
    "Admission",
    "AdmittedElsewhere",
    "Caller",
    "Rule",
]

AUDIT_LOGGER = "topk_bandit.audit"
_audit = logging.getLogger(AUDIT_LOGGER)

_ANYBODY = Key("", EVERY_TENANT, frozenset(Scope))
RESPONDENTS = "~"
"""Stands for a tenant, as none is named, where calls of people with links share turns and places with others'."""

MOST_FROM_PEOPLE = 64 * 1024
"""So many bytes a message of somebody with a link has at most: an answer has some two thousand."""

LONGEST_NAME = 200
"""A name that was not checked yet is cut to so many characters in logs."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a method asks of its caller.

    Attributes
    ----------
    scope
        What its key has to be for; None for a method that people call without a key, who show a link's token.
    field
        Path of the field that names what the call is about; empty for a call about every tenant.
    audited
        Whether its calls are in the audit log: those that create, change or delete what is managed.
    operators
        Whether the scope of operators is as good: they read what there is, back it up, and let people answer.
    counted
        Name of a repeated field of which each entry counts as a call for quotas; empty where the call is one.
    """

    scope: Scope | None
    field: str = ""
    audited: bool = False
    operators: bool = False
    counted: str = ""

    def admits(self, scopes: Collection[Scope]) -> bool:
        """Return whether a key with these scopes may call."""
        return self.scope in scopes or (self.operators and Scope.OPERATE in scopes)

    def resource(self, request: Message) -> str:
        """Return what a call is about, by name."""
        return str(attrgetter(self.field)(request)) if self.field else fields.ALL_TENANTS

    def count(self, request: Message) -> int:
        """Return as how many calls a request counts."""
        return len(getattr(request, self.counted)) if self.counted else 1


def _rules(service: str, **of_methods: Rule) -> dict[str, Rule]:
    return {f"/{service}/{method}": rule for method, rule in of_methods.items()}


RULES: Mapping[str, Rule] = {
    **_rules(
        "topk_bandit.v1.RecommenderService",
        Recommend=Rule(Scope.RECOMMEND, "bandit"),
        BatchRecommend=Rule(Scope.RECOMMEND, "bandit", counted="requests"),
        RecommendPage=Rule(Scope.RECOMMEND, "parent", counted="placements"),
        RewardPage=Rule(Scope.REWARD, "parent", counted="bandits"),
        Activate=Rule(Scope.RECOMMEND, "bandit"),
        Reward=Rule(Scope.REWARD, "bandit"),
        VoidReward=Rule(Scope.REWARD, "bandit"),
        AmendReward=Rule(Scope.REWARD, "bandit"),
        BatchReward=Rule(Scope.REWARD, "bandit"),
    ),
    **_rules(
        "topk_bandit.v1.BanditService",
        CreateBandit=Rule(Scope.MANAGE, "bandit.name", audited=True),
        GetBandit=Rule(Scope.MANAGE, "name", operators=True),
        ListBandits=Rule(Scope.MANAGE, "parent", operators=True),
        UpdateBandit=Rule(Scope.MANAGE, "bandit.name", audited=True),
        ResetBandit=Rule(Scope.MANAGE, "name", audited=True),
        DeleteBandit=Rule(Scope.MANAGE, "name", audited=True),
        UpsertItems=Rule(Scope.MANAGE, "bandit", audited=True),
        RetireItems=Rule(Scope.MANAGE, "bandit", audited=True),
        ListItems=Rule(Scope.MANAGE, "bandit", operators=True),
        ImportObservations=Rule(Scope.MANAGE, "bandit", audited=True),
        GetImport=Rule(Scope.MANAGE, "bandit"),
        GetBanditStats=Rule(Scope.OPERATE, "bandit"),
    ),
    **_rules(
        "topk_bandit.v1.PreferenceService",
        CreateStudy=Rule(Scope.MANAGE, "study.name", audited=True),
        GetStudy=Rule(Scope.MANAGE, "name", operators=True),
        ListStudies=Rule(Scope.MANAGE, "parent", operators=True),
        DeleteStudy=Rule(Scope.MANAGE, "name", audited=True),
        NextQuestions=Rule(Scope.RECOMMEND, "study"),
        SubmitAnswers=Rule(Scope.REWARD, "study"),
        CreateLink=Rule(Scope.MANAGE, "study", audited=True, operators=True),
        ListLinks=Rule(Scope.MANAGE, "study", operators=True),
        RevokeLink=Rule(Scope.MANAGE, "study", audited=True, operators=True),
        GetLinkQuestions=Rule(None, "study"),
        SubmitLinkAnswer=Rule(None, "study"),
        ImportAnswers=Rule(Scope.MANAGE, "study", audited=True),
        GetAnswerImport=Rule(Scope.MANAGE, "study"),
        GetPreferences=Rule(Scope.MANAGE, "study", operators=True),
        ExportStudy=Rule(Scope.OPERATE, "study"),
        ImportStudy=Rule(Scope.MANAGE, "study", audited=True),
    ),
    **_rules(
        "topk_bandit.v1.OperatorService",
        ExplainRecommendation=Rule(Scope.OPERATE, "bandit"),
        ListTopSlates=Rule(Scope.OPERATE, "bandit"),
        ListTenants=Rule(Scope.OPERATE),
        GetTenantStats=Rule(Scope.OPERATE, "tenant"),
        GetServiceStatus=Rule(Scope.OPERATE),
        ListBanditOverviews=Rule(Scope.OPERATE, "parent"),
        GetBanditHistory=Rule(Scope.OPERATE, "bandit"),
        VerifyBandit=Rule(Scope.OPERATE, "bandit"),
        ExportEvents=Rule(Scope.OPERATE, "bandit"),
        ExportState=Rule(Scope.OPERATE, "bandit"),
        ImportEvents=Rule(Scope.MANAGE, "bandit", audited=True),
        SkipEvent=Rule(Scope.MANAGE, "bandit", audited=True),
    ),
    **_rules(
        "google.longrunning.Operations",
        GetOperation=Rule(Scope.MANAGE, "name"),
        ListOperations=Rule(Scope.MANAGE, "name"),
        CancelOperation=Rule(Scope.MANAGE, "name", audited=True),
        WaitOperation=Rule(Scope.MANAGE, "name"),
        DeleteOperation=Rule(Scope.MANAGE, "name"),
    ),
}
"""What each method asks of its caller, by its full name."""


class Caller(Protocol):
    """The needed part of a call's context, as `grpc.aio.ServicerContext` has it."""

    def invocation_metadata(self) -> Metadata | None:
        """Return the headers."""

    def auth_context(self) -> AuthContext:
        """Return what the handshake reported of the caller."""


class Access:
    """Decides who may call.

    A call that shows a key is its owner's, whatever certificate its connection has.

    Parameters
    ----------
    keys, identities
        None of both lets everybody do everything.

    Attributes
    ----------
    keys, identities
        As above. Others may take their place while calls come; they are for the calls from then on.
    serves_links
        Whether people may call who show a link's token.
    """

    def __init__(
        self, keys: KeyRing | None, identities: Identities | None = None, *, serves_links: bool = False
    ) -> None:
        self.keys = keys
        self.identities = identities
        self.serves_links = serves_links

    def find(self, caller: Caller) -> Key | None:
        """Return whose call it is; None if it shows no key that is known, or more than one, nor a known certificate."""
        if self.keys is None and self.identities is None:
            return _ANYBODY
        shown = _read_authorization(caller)
        if not shown and self.identities is not None:
            return self.identities.find(names_in(caller.auth_context()))
        text = shown[0] if len(shown) == 1 else None
        return self.keys.find(text) if self.keys is not None and isinstance(text, str) else None

    def may_send(self, rule: Rule, caller: Caller) -> bool:
        """Return whether what a caller sends is read at all."""
        return self.serves_links if rule.scope is None else self.find(caller) is not None

    def _unknown(self, caller: Caller) -> UnauthenticatedError:
        by_certificate = self.identities is not None and not _read_authorization(caller)
        return UnauthenticatedError(names_in(caller.auth_context()) if by_certificate else ())

    def admit(self, method: str, rule: Rule | None, caller: Caller) -> Admission:
        """Admit a call before it is parsed; None for a rule admits everybody.

        Raises
        ------
        UnauthenticatedError
            It shows no key that is known, nor does its connection have a certificate that is.
        ForbiddenError
            Its key does not have the scope; or it is for people with links, and the service serves none.
        """
        if rule is None:
            return Admission(_ANYBODY, None, method)
        if rule.scope is None:
            if not self.serves_links:
                raise ForbiddenError("LINKS_OFF", "this service serves no links: --answer-links is not set")
            return Admission(_ANYBODY, rule, method, tenant=RESPONDENTS)
        key = self.find(caller)
        if key is None:
            raise self._unknown(caller)
        if not rule.admits(key.scopes):
            raise ForbiddenError("SCOPE_NEEDED", f"a key with the scope {rule.scope} is needed")
        return Admission(key, rule, method)


class AdmittedElsewhere(Access):
    """Lets everybody who can connect call: another worker has admitted each call, and has it in its audit log."""

    def __init__(self) -> None:
        super().__init__(None)

    def admit(self, method: str, rule: Rule | None, caller: Caller) -> Admission:  # noqa: ARG002, it is not asked
        """Admit a call."""
        return Admission(_ANYBODY, None, method)


def _read_authorization(caller: Caller) -> list[str | bytes]:
    return [value for name, value in caller.invocation_metadata() or () if name == "authorization"]


class Admission:
    """A call that was admitted, for as long as it lasts.

    Attributes
    ----------
    tenant
        The one that its key is for; empty when that is for every tenant, and `RESPONDENTS` for people with links.
    resource
        What it is about, as its request names it; empty until that is parsed, and for what is about nothing.
    has_begun
        Whether it may have done something; one that waits in the queue has not.
    """

    def __init__(self, key: Key, rule: Rule | None, method: str, *, tenant: str = "") -> None:
        self._key, self._rule, self._method = key, rule, method
        self.has_begun = False
        self.tenant = tenant if key.tenant == EVERY_TENANT else key.tenant
        self.resource = ""

    def permit(self, request: Any) -> None:  # noqa: ANN401 - a message of the method's own type
        """Permit what was parsed.

        Raises
        ------
        ForbiddenError
            It is about another tenant than the key is for, or about every tenant, and the key is not.
        InvalidArgumentError
            It does not say which tenant it is about.
        """
        if self._rule is None:
            return
        self.resource = self._rule.resource(request)
        if self._key.tenant == EVERY_TENANT:
            return
        if self.resource == fields.ALL_TENANTS:
            raise ForbiddenError("TENANT_NEEDED", "a key for every tenant is needed")
        needed = fields.tenant_of(self._rule.field, self.resource)
        if needed != self._key.tenant:
            raise ForbiddenError("TENANT_NEEDED", f"{self._rule.field}: a key for tenants/{needed} is needed")

    @property
    def is_audited(self) -> bool:
        """Whether the audit log has to have what becomes of it."""
        return self._rule is not None and self._rule.audited

    def end(self, outcome: str) -> None:
        """Write the call into the audit log, if it belongs there; `outcome` is the name of a gRPC status code."""
        if not self.is_audited:
            return
        caller = {"key": self._key.id, "tenant": self._tenant(), "method": self._method.removeprefix("/")}
        _audit.info("audit", extra={**caller, "resource": self.resource[:LONGEST_NAME], "outcome": outcome})

    def _tenant(self) -> str:
        try:
            return fields.tenant_of("name", self.resource)
        except InvalidArgumentError:
            return ""
