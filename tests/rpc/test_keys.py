from __future__ import annotations

import hmac
import json
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rpc.keys import SECRETS, bearer, key, ring, shown

from topk_bandit.domain.access import Scope
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.rpc import keys
from topk_bandit.rpc.keys import KeyRing, new_key, parse_keys, print_keys


def test_a_key_is_found_by_what_its_owner_shows() -> None:
    found = ring().find(bearer("acme"))
    assert found is not None
    assert (found.id, found.tenant, found.scopes) == ("acme", "acme", frozenset(Scope))
    assert ring().find(bearer("acme").replace("Bearer", "bearer")) == found


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer .",
        f"Bearer {shown('acme')}=",
        f"Bearer {shown('acme')} ",
        f"Bearer {shown('acme')}\n",
        f" Bearer {shown('acme')}",
        f"Basic {shown('acme')}",
        shown("acme"),
        f"Bearer acme.{SECRETS['globex']}",
        f"Bearer nobody.{SECRETS['acme']}",
        f"Bearer nobody.{chr(0) * 43}",
        f"Bearer acme.{SECRETS['acme'][:-1]}",
        f"Bearer acme.{'é' * 43}",
        "Bearer " + "a" * 1_000_000,
    ],
)
def test_nothing_else_is_a_key(header: str) -> None:
    assert ring().find(header) is None


@pytest.mark.parametrize(
    "header", [bearer("acme"), f"Bearer acme.{SECRETS['globex']}", f"Bearer nobody.{SECRETS['acme']}"]
)
def test_known_and_unknown_keys_cost_the_same_digest_and_comparison(
    header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []
    compared: list[tuple[int, int]] = []

    def digest(data: bytes) -> Any:  # noqa: ANN401 - the library's own type
        hashed.append(len(data))
        return sha256(data)

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    known = ring()
    monkeypatch.setattr(keys, "sha256", digest)
    monkeypatch.setattr(keys, "hmac", SimpleNamespace(compare_digest=compare))
    known.find(header)
    assert (hashed, compared) == ([43], [(32, 32)])


@given(st.text() | st.text().map("Bearer {}".format) | st.text().map("Bearer acme.{}".format))
def test_no_text_is_a_key_by_chance(header: str) -> None:
    assert ring().find(header) is None


def test_only_a_digest_is_kept() -> None:
    text = print_keys(ring())
    assert not [secret for secret in SECRETS.values() if secret in text + repr(ring().keys)]
    assert sha256(SECRETS["acme"].encode()).hexdigest() in text
    assert sha256(SECRETS["acme"].encode()).hexdigest() not in repr(ring().keys)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "*"]), st.sets(st.sampled_from(Scope), min_size=1)), max_size=6))
def test_what_is_printed_is_parsed_again(owned: list[tuple[str, set[Scope]]]) -> None:
    try:
        keys = KeyRing(
            new_key(key_id=f"k{number}", secret=str(number), tenant=tenant, scopes=scopes, created="now")
            for number, (tenant, scopes) in enumerate(owned)
        )
    except ConfigurationError:
        assert max(owned.count(one) for one in owned) > 2
        return
    assert parse_keys(print_keys(keys)).keys == keys.keys


def test_a_third_key_is_refused_by_name() -> None:
    two = ring(key("second"))
    with pytest.raises(
        ConfigurationError, match=r"tenant acme has two keys with the scopes .*, acme and second: revoke"
    ):
        two.with_key(key("third"))
    assert two.with_key(key("third", scopes=[Scope.REWARD])).find(bearer("third"))
    assert two.without("acme").with_key(key("third")).find(bearer("acme")) is None


def test_a_key_that_is_not_there_is_not_revoked() -> None:
    with pytest.raises(ConfigurationError, match="there is no key 'third'"):
        ring().without("third")


def entry(**changed: object) -> dict[str, Any]:
    return {"id": "a", "tenant": "t", "scopes": ["reward"], "sha256": "0" * 64, "created": "", **changed}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([], r'is not \{"keys": \[...\]\}'),
        ({"keys": {}}, "is not"),
        ({"keys": [], "more": 1}, "is not"),
        ({"keys": [entry(), {}]}, r"keys\[1\] must have created, id, scopes, sha256, tenant, and nothing else"),
        ({"keys": [entry(secret="s")]}, r"keys\[0\] must have"),
        ({"keys": ["a"]}, r"keys\[0\] must have"),
        ({"keys": [entry(id="a.b")]}, r"keys\[0\]\.id is not"),
        ({"keys": [entry(tenant="")]}, r"keys\[0\]\.tenant is not"),
        ({"keys": [entry(tenant="**")]}, r"keys\[0\]\.tenant is not"),
        ({"keys": [entry(sha256="0" * 63)]}, r"keys\[0\]\.sha256 is not"),
        ({"keys": [entry(sha256=None)]}, r"keys\[0\]\.sha256 is not"),
        ({"keys": [entry(scopes=[])]}, r"keys\[0\]\.scopes must be some of recommend, reward, manage, operate"),
        ({"keys": [entry(scopes=["all"])]}, r"keys\[0\]\.scopes must be"),
        ({"keys": [entry(scopes=[["reward"]])]}, r"keys\[0\]\.scopes must be"),
        ({"keys": [entry(scopes="reward")]}, r"keys\[0\]\.scopes must be"),
        ({"keys": [entry(created=1)]}, r"keys\[0\]\.created is not text that can be printed"),
        ({"keys": [entry(created="\x1b[31m")]}, r"keys\[0\]\.created is not text that can be printed"),
        ({"keys": [entry(), entry()]}, "two keys have the id a"),
        ({"keys": [entry(id=one) for one in "abc"]}, "has two keys with the scopes reward already, a and b"),
    ],
)
def test_the_refusal_of_a_file_that_is_no_keys_file_says_what_is_wrong(content: object, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parse_keys(json.dumps(content))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "\ud800"])
def test_a_file_that_is_not_json(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_keys(text)


@pytest.mark.parametrize(("tenant", "scopes"), [("", [Scope.REWARD]), ("a/b", [Scope.REWARD]), ("a", [])])
def test_a_key_is_for_a_tenant_and_for_something(tenant: str, scopes: list[Scope]) -> None:
    with pytest.raises(ConfigurationError):
        new_key(key_id="a", secret="s", tenant=tenant, scopes=scopes, created="")
