"""`topk-bandit keys`: the keys of those who may call the service, in a file that it reads."""

from __future__ import annotations

import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from topk_bandit.domain.access import EVERY_TENANT, Key, Scope
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process.keys_file import change_keys, read_keys
from topk_bandit.rpc.keys import SECRET_BYTES, new_key

if TYPE_CHECKING:
    import argparse

__all__ = ["DESCRIPTION", "add_arguments"]

DESCRIPTION = """\
Make, list and revoke keys. A service that was given the file with --keys-file takes changes in within seconds.

  topk-bandit keys create --tenant shop --scope recommend --scope reward > key
  topk-bandit keys list
  topk-bandit keys revoke 5f0c1e2d

recommend    Recommend, BatchRecommend, RecommendPage, Activate, NextQuestions
reward       Reward, VoidReward, AmendReward, BatchReward, RewardPage, SubmitAnswers
manage       bandits, items, imports, studies and their designs: look, create, change, delete
operate      GetBanditStats, and all calls of OperatorService: why slates were shown, how bandits stand
"""
_VARIABLE = "TOPK_BANDIT_KEYS_FILE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the words of `keys` to a parser, each with a `run` that returns an exit status."""
    words = parser.add_subparsers(required=True, metavar="WORD", title="words")
    create = words.add_parser(
        "create", help="make a key", description="Make a key, and print it: it can't be printed again."
    )
    create.add_argument("--tenant", required=True, metavar="TENANT", help="whose names it is for; *: everybody's")
    create.add_argument(
        "--scope",
        dest="scopes",
        action="append",
        required=True,
        choices=[scope.value for scope in Scope],
        metavar="SCOPE",
        help=f"what it is for: {', '.join(Scope)}; can be given again",
    )
    shown = words.add_parser("list", help="list the keys", description="List the keys, without their secrets.")
    revoke = words.add_parser("revoke", help="revoke a key", description="Revoke a key: its calls are refused.")
    revoke.add_argument("id", metavar="ID", help="what `list` shows, the part of the key before its dot")
    for word, run in ((create, _create), (shown, _list), (revoke, _revoke)):
        text = f"where the keys are (environment: {_VARIABLE})"
        word.add_argument("--keys-file", type=Path, metavar="FILE", help=text)
        word.set_defaults(run=run)


def _file(given: argparse.Namespace) -> Path:
    path: Path | None = given.keys_file
    if path is None and (value := os.environ.get(_VARIABLE)):
        path = Path(value)
    if path is None:
        raise ConfigurationError(f"keys_file: say where the keys are, with --keys-file or {_VARIABLE}")
    return path.expanduser()


def _create(given: argparse.Namespace) -> int:
    key_id, secret = secrets.token_hex(4), secrets.token_urlsafe(SECRET_BYTES)
    made = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    key = new_key(key_id=key_id, secret=secret, tenant=given.tenant, scopes=map(Scope, given.scopes), created=made)
    path = _file(given)
    if sys.stdout is None:
        raise ConfigurationError("standard output is closed: nobody would know the key")
    change_keys(path, lambda ring: ring.with_key(key))
    try:
        print(f"{key_id}.{secret}", flush=True)  # noqa: T201 - this once
    except OSError:  # nobody knows it
        change_keys(path, lambda ring: ring.without(key_id))
        raise
    print("keep it: it can't be shown again", file=sys.stderr)  # noqa: T201
    return 0


def _list(given: argparse.Namespace) -> int:
    for key in read_keys(_file(given)).keys:
        print(_describe_key(key))  # noqa: T201
    return 0


def _describe_key(key: Key) -> str:
    owner = "every tenant" if key.tenant == EVERY_TENANT else key.tenant
    return f"{key.id}  {owner}  {','.join(sorted(key.scopes))}  {key.created}"


def _revoke(given: argparse.Namespace) -> int:
    change_keys(_file(given), lambda ring: ring.without(given.id))
    print(f"revoked {given.id}")  # noqa: T201
    return 0
