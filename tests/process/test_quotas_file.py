from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.quotas import UNLIMITED, Quota, Quotas
from topk_bandit.process.listeners import check_listeners
from topk_bandit.process.quotas_file import read_quotas
from topk_bandit.process.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
[shop]
calls_per_second = 500
items = "none"

["eu.shop-2"]
bandits = 3

[quiet]
"""

BAD = {
    "[shop": "is not TOML",
    "\xff": "is not TOML",
    "shop = 5": "shop is no table; write \\[shop\\]",
    "['a b']\nitems = 1": "'a b' is no tenant",
    "['*']\nitems = 1": "'\\*' is no tenant",
    f"[{'x' * 65}]\nitems = 1": "is no tenant",
    "[shop]\nitem = 1": r"shop.item is none of calls_per_second, .*; did you mean items\?",
    "[eu.shop]\nitems = 1": 'quote a tenant with dots: \\["eu.shop"\\]',
    "[shop]\nitems = 0": 'shop.items is neither a whole number from 1 on nor "none"',
    "[shop]\nitems = -3": "shop.items is neither",
    "[shop]\nitems = 1.5": "shop.items is neither",
    "[shop]\nitems = true": "shop.items is neither",
    "[shop]\nitems = 'many'": "shop.items is neither",
    f"[shop]\nitems = {2**53}": "shop.items is neither",
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "quotas.toml"
    path.write_bytes(text.encode("latin-1"))
    return path


def test_own_quotas_replace_the_default_ones(tmp_path: Path) -> None:
    own = read_quotas(written(tmp_path, GOOD))
    assert own == {
        "shop": {Quota.CALLS_PER_SECOND: 500, Quota.ITEMS: UNLIMITED},
        "eu.shop-2": {Quota.BANDITS: 3},
        "quiet": {},
    }
    quotas = Quotas({Quota.ITEMS: 10, Quota.BANDITS: 1000}, own)
    assert [quotas.limit("shop", one) for one in (Quota.CALLS_PER_SECOND, Quota.ITEMS, Quota.BANDITS)] == [
        500,
        UNLIMITED,
        1000,
    ]
    assert [quotas.limit(tenant, Quota.BANDITS) for tenant in ("eu.shop-2", "quiet", "other")] == [3, 1000, 1000]
    assert quotas.limit("other", Quota.ITEMS) == 10
    assert quotas.limit("other", Quota.OPEN_SLATES) == UNLIMITED


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_quota_is_refused_and_named(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigurationError, match=BAD[text]) as refused:
        read_quotas(path)
    assert str(refused.value).startswith(f"quotas_file: {path}")
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="quotas_file"):  # also before a start
        check_listeners(Settings(quotas_file=path))


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="can't be read: No such file"):
        read_quotas(tmp_path / "none.toml")


def test_own_quotas_of_calls_need_keys(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    with pytest.raises(ConfigurationError, match="quotas_file: shop: calls_per_second needs keys_file"):
        check_listeners(Settings(quotas_file=path))
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}')
    check_listeners(Settings(quotas_file=path, keys_file=keys))
