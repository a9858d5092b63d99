"""The Lua scripts, each with `lua/common.lua` in front; behind that, those about slates have more to share.

Those of `lua/index` and `lua/aggregate` serve bandits and studies alike. Behind a script's first line stands the data
version that it is to write. The first line declares to the server what it does: ``no-writes`` for one that reads,
``allow-oom`` for one that frees memory, or takes next to none. The server refuses all others as a whole, before they
begin, when its memory is used up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files

__all__ = ["Script", "SentScript"]


@dataclass(frozen=True, slots=True)
class SentScript:
    """What a server is sent, and the digest that it knows it by once it has seen it."""

    source: str
    digest: str


@dataclass(frozen=True, slots=True)
class Script:
    """A script: the line that declares what it does, and what comes behind the data version."""

    declaration: str
    body: str

    def at(self, version: int) -> SentScript:
        """Return the script that writes a data version."""
        return _assemble_script(self, version)


@cache
def _assemble_script(script: Script, version: int) -> SentScript:
    source = f"{script.declaration}\nlocal data_version = {version}\n{script.body}"
    return SentScript(source=source, digest=sha1(source.encode(), usedforsecurity=False).hexdigest())


def _load(name: str, *shared: str) -> Script:
    """Return the script in `lua/`, behind the functions that all share, and those that some do."""
    folder = files("topk_bandit.store.redis").joinpath("lua")
    texts = [folder.joinpath(f"{one}.lua").read_text(encoding="utf-8") for one in ("common", *shared, name)]
    declaration, _, body = texts[-1].partition("\n")
    return Script(declaration, "\n".join([*texts[:-1], body]))


ENTER_AGAIN = _load("index/enter_again")
LAPSED_RESERVATIONS = _load("index/lapsed_reservations")
RELEASE_ENTRIES = _load("index/release_entries")
RESERVE_ENTRY = _load("index/reserve_entry")

DELETE = _load("aggregate/delete")
FINISH_RESTORE = _load("aggregate/finish_restore")
READ_RESTORED = _load("aggregate/read_restored")
RECORD_RESTORE = _load("aggregate/record_restore")

COMMIT = _load("bandit/commit", "closed", "filing")
CREATE_BANDIT = _load("bandit/create_bandit")
EXAMINE = _load("bandit/examine")
FORGET_CLOSED = _load("bandit/forget_closed", "closed", "filing")
LIST_ITEMS = _load("bandit/list_items")
LOAD_SNAPSHOTS = _load("bandit/load_snapshots")
MEASURE = _load("bandit/measure")
NOTE_FOLLOWER = _load("bandit/note_follower")
READ = _load("bandit/read", "closed")
READ_DUE = _load("bandit/read_due", "closed")
READ_CONTENTS = _load("bandit/read_contents")
READ_LOG = _load("bandit/read_log")
SAVE_SNAPSHOT = _load("bandit/save_snapshot")
SCAN_IMPORTS = _load("bandit/scan_imports")
SCAN_SLATES = _load("bandit/scan_slates")
SLOWEST_FOLLOWER = _load("bandit/slowest_follower")

FINALIZE = _load("programs/finalize")
NOTE_PROGRAM = _load("programs/note")
PROBE = _load("programs/probe")

STUDY_COMMIT = _load("study/commit")
STUDY_CREATE = _load("study/create")
STUDY_LIST_DESIGN = _load("study/list_design")
STUDY_READ_KNOWN = _load("study/read_known")
STUDY_READ = _load("study/read")
STUDY_UNLIST_DESIGN = _load("study/unlist_design")
