"""The Lua scripts beside this module, each with the text that all share in front of it.

A script's first line declares to the server what it does: ``no-writes`` for one that reads, ``allow-oom`` for one that
frees memory. All others are refused as a whole, before they begin, when memory is used up.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files

__all__ = [
    "CHANGE_ITEMS",
    "CREATE_BANDIT",
    "DELETE_BANDIT",
    "EXPIRE_DUE",
    "FIND_RECOMMENDATION",
    "LAPSED_RESERVATIONS",
    "LIST_ITEMS",
    "LOAD_SNAPSHOTS",
    "READ_LOG",
    "RECORD_RECOMMENDATION",
    "RECORD_REWARD",
    "RELEASE_BANDITS",
    "RESERVE_BANDIT",
    "SAVE_SNAPSHOT",
    "STUDY_ANSWER",
    "STUDY_ASK",
    "STUDY_CLAIM",
    "STUDY_CREATE",
    "STUDY_DELETE",
    "STUDY_END_DESIGN",
    "STUDY_LIST_DESIGN",
    "STUDY_READ",
    "STUDY_REPORT",
    "STUDY_UNLIST_DESIGN",
    "UPDATE_SETTINGS",
    "Script",
]


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the digest that the server knows it by once it has seen it."""

    source: str
    digest: str


def _load(name: str) -> Script:
    folder = files("topk_bandit.store").joinpath("lua")
    common = folder.joinpath("common.lua").read_text(encoding="utf-8")
    declaration, _, body = folder.joinpath(f"{name}.lua").read_text(encoding="utf-8").partition("\n")
    source = f"{declaration}\n{common}\n{body}"
    return Script(source=source, digest=sha1(source.encode(), usedforsecurity=False).hexdigest())


CHANGE_ITEMS = _load("change_items")
CREATE_BANDIT = _load("create_bandit")
DELETE_BANDIT = _load("delete_bandit")
EXPIRE_DUE = _load("expire_due")
FIND_RECOMMENDATION = _load("find_recommendation")
LAPSED_RESERVATIONS = _load("lapsed_reservations")
LIST_ITEMS = _load("list_items")
LOAD_SNAPSHOTS = _load("load_snapshots")
NOTE_FOLLOWER = _load("note_follower")
READ_LOG = _load("read_log")
RECORD_RECOMMENDATION = _load("record_recommendation")
RECORD_REWARD = _load("record_reward")
RELEASE_BANDITS = _load("release_bandits")
RESERVE_BANDIT = _load("reserve_bandit")
SAVE_SNAPSHOT = _load("save_snapshot")
SLOWEST_FOLLOWER = _load("slowest_follower")
UPDATE_SETTINGS = _load("update_settings")

STUDY_ANSWER = _load("study_answer")
STUDY_ASK = _load("study_ask")
STUDY_CLAIM = _load("study_claim")
STUDY_CREATE = _load("study_create")
STUDY_DELETE = _load("study_delete")
STUDY_END_DESIGN = _load("study_end_design")
STUDY_LIST_DESIGN = _load("study_list_design")
STUDY_READ = _load("study_read")
STUDY_REPORT = _load("study_report")
STUDY_UNLIST_DESIGN = _load("study_unlist_design")
