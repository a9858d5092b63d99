"""What the store's user must be allowed, and what of it a server says that it may not.

A server that refuses a command in the middle of a script leaves what the script wrote before: so a start asks for all
of them at once, and a service that runs asks again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topk_bandit.domain.durability import Durability

__all__ = ["COMMANDS", "OPTIONAL", "describe_refused", "permission_check"]

COMMANDS = (
    "APPEND KEY .",
    "DEL KEY",
    "EVAL . 1 KEY",
    "EVALSHA . 1 KEY",
    "EXISTS KEY",
    "GET KEY",
    "HDEL KEY .",
    "HGET KEY .",
    "HGETALL KEY",
    "HINCRBY KEY . 1",
    "HLEN KEY",
    "HMGET KEY .",
    "HSCAN KEY 0",
    "HSET KEY . .",
    "INFO",
    "PERSIST KEY",
    "PEXPIREAT KEY 1",
    "PUBLISH CHANNEL .",
    "RENAME KEY KEY",
    "SCAN 0",
    "SET KEY .",
    "SUBSCRIBE CHANNEL",
    "TIME",
    "TYPE KEY",
    "UNLINK KEY",
    "XADD KEY * . .",
    "XRANGE KEY - +",
    "XREVRANGE KEY + -",
    "XTRIM KEY MINID 1",
    "ZADD KEY 1 .",
    "ZCARD KEY",
    "ZCOUNT KEY 1 1",
    "ZMSCORE KEY .",
    "ZRANGE KEY 0 1",
    "ZRANGEBYLEX KEY - +",
    "ZRANGEBYSCORE KEY 1 1",
    "ZREM KEY .",
    "ZSCAN KEY 0",
    "ZSCORE KEY .",
)
"""What is sent, by scripts or without them; a word KEY stands for a key of ours, CHANNEL for what we announce on."""

OPTIONAL = ("CONFIG GET", "MEMORY USAGE")
"""What is sent and not needed. Settings that can't be read are not examined; uncounted bytes have no quota."""

_SCRIPT = """#!lua flags=no-writes
local means, refused = {KEY = ARGV[1], CHANNEL = ARGV[2]}, {}
for place = 3, #ARGV do
  local words = {}
  for word in string.gmatch(ARGV[place], '%S+') do
    words[#words + 1] = means[word] or word
  end
  local known, allowed = pcall(redis.acl_check_cmd, unpack(words))
  if known and not allowed then
    refused[#refused + 1] = string.lower(words[1])
  end
end
return refused
"""
_MOST_NAMED = 10


def permission_check(durability: Durability, *, key: str, channel: str) -> tuple[str, ...]:
    """Return the command by which a server says what it refuses, of all that is needed to keep a class."""
    waits = [*["WAITAOF 1 0 1"] * durability.synced, *["WAIT 1 1"] * bool(durability.replicas)]
    return ("EVAL", _SCRIPT, "0", key, channel, *COMMANDS, *waits)


def describe_refused(answer: Sequence[Any], *, prefix: str) -> Sequence[str]:
    """Return what is wrong by a server's answer, and what to do about it; nothing if nothing is."""
    refused = [name.decode() if isinstance(name, bytes) else str(name) for name in answer]
    if not refused:
        return ()
    more = f" and {len(refused) - _MOST_NAMED} more" if len(refused) > _MOST_NAMED else ""
    commands = ", ".join(refused[:_MOST_NAMED]) + more
    return (f"The store's user may not run {commands} on what begins with {prefix}: let it, with ACL SETUSER.",)
