"""What the client library says of a line that garbles what it carries means that the store is away."""

from __future__ import annotations

import pytest
from redis import exceptions as raised

from topk_bandit.domain.errors import UnavailableError
from topk_bandit.store.redis.link import translate


@pytest.mark.parametrize(
    "error",
    [
        raised.InvalidResponse("Bad bulk string length"),
        raised.ResponseError("Protocol error: invalid CRLF in request"),
    ],
)
def test_what_can_not_be_taken_apart_is_an_outage(error: Exception) -> None:
    assert isinstance(translate(error), UnavailableError)


def test_an_error_of_a_command_is_none() -> None:
    error = raised.ResponseError("ERR value is not an integer or out of range")
    assert translate(error) is error
