"""The grammar of a store's URL: what it names, how it is shown, and what is none."""

from __future__ import annotations

import pytest

from topk_bandit.store.redis.url import SentinelUrl, StoreUrl

SENTINEL = {
    "sentinel://one:1,two:2/main": SentinelUrl((("one", 1), ("two", 2)), "main"),
    "sentinel://one/main": SentinelUrl((("one", 26379),), "main"),
    "sentinel://one:1/main/": SentinelUrl((("one", 1),), "main"),
    "sentinel://one:1,[::2]:2,[::3]/main": SentinelUrl((("one", 1), ("::2", 2), ("::3", 26379)), "main"),
    "sentinel://me:p%40ss%2F%3A@one:1/the%2Fmain": SentinelUrl((("one", 1),), "the/main", "me", "p@ss/:"),
    "sentinel://:a:b@one:1/main": SentinelUrl((("one", 1),), "main", "", "a:b"),
}


@pytest.mark.parametrize("text", SENTINEL)
def test_a_sentinel_url_names_sentinels_a_service_and_the_login_of_its_servers(text: str) -> None:
    assert StoreUrl.parse(text).sentinel == SENTINEL[text]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://one", "redis://one"),
        ("redis://[::1]:6379/3", "redis://[::1]:6379/3"),
        ("rediss://:secret@one:6379?ssl_password=secret&db=", "rediss://***@one:6379?ssl_password=***&db=***"),
        ("unix://secret@/run/redis.sock", "unix://***@/run/redis.sock"),
        ("sentinel://one:1,[::2]:2/main", "sentinel://one:1,[::2]:2/main"),
        ("sentinel://me:secret@one:1,two/main/", "sentinel://***@one:1,two/main"),
        ("sentinel://@one:1/main", "sentinel://***@one:1/main"),
    ],
)
def test_a_url_is_shown_without_its_secrets(text: str, shown: str) -> None:
    url = StoreUrl.parse(text)
    assert (url.text, str(url)) == (text, shown)
    assert "secret" not in f"{url} {url!r}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "http://secret",
        "redis://",
        "redis://:secret@",
        "redis://:secret@one:0",
        "redis://:secret@one:65536",
        "redis://:sec/ret@one",
        "redis://:secret@one#fragment",
        "redis://:secret@o ne",
        "redis://:secret@one\n",
        "redis://:secret@[one",
        "unix://",
        "unix://secret",
        "sentinel://",
        "sentinel://one:1",
        "sentinel://one:1/",
        "sentinel://one:1/main/more",
        "sentinel:///main",
        "sentinel://one:1,/main",
        "sentinel://:1/main",
        "sentinel://one:port/main",
        "sentinel://one:0/main",
        "sentinel://one:65536/main",
        "sentinel://one:1:2/main",
        "sentinel://[::1/main",
        "sentinel://:sec/ret@one:1/main",
        "sentinel://:secret@o ne:1/main",
        "sentinel://:secret@one:1/main?db=1",
        "sentinel://:secret@one:1/main#fragment",
        "sentinel://:secret@one:1/main\n",
    ],
)
def test_what_is_no_url_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"^is not a URL like redis://host:port/0") as refusal:
        StoreUrl.parse(text)
    assert "secret" not in str(refusal.value)
    assert refusal.value.__suppress_context__
