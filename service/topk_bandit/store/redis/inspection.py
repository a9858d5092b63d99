"""What a server must be for the store to keep its promises: version, role, eviction policy, log, rights, replicas.

Each problem comes with what to do about it; nothing on the server is ever changed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from topk_bandit.store.log import StoreReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topk_bandit.domain.durability import Durability

__all__ = ["report"]

_MINIMUM = {"redis": (7, 0), "valkey": (7, 2)}
_WITH_WAITAOF = {"redis": (7, 2), "valkey": (7, 2)}


def report(
    infos: Mapping[str, Mapping[str, Any]],
    *,
    settings: Mapping[str, Mapping[str, str]],
    durability: Durability,
    mode: str,
    refusals: Mapping[str, Sequence[str]] = MappingProxyType({}),
    clock_ms: int,
) -> StoreReport:
    """Return what the servers say of themselves.

    Parameters
    ----------
    infos
        The answer to ``INFO`` of each server that takes writes, by its name; a single one may have an empty name.
    settings
        Their settings, by the same names; nothing of a server that does not return them.
    durability
        The class that they have to keep.
    refusals
        What they do not let the store's user do, by the same names.
    """
    problems = [
        _name_problem(name, problem)
        for name, info in infos.items()
        for problem in (
            *_problems(info, durability),
            *_unkept(durability, settings.get(name, {})),
            *refusals.get(name, ()),
        )
    ]
    shortages = [
        _name_problem(name, shortage) for name, info in infos.items() for shortage in _shortages(info, durability)
    ]
    losses = [_name_problem(name, loss) for name, info in infos.items() for loss in _evictions(info)]
    info = next(iter(infos.values()))
    server, version = _software(info)
    memory_bytes, limit_bytes = max(map(_memory, infos.values()), key=lambda memory: memory[0] / max(memory[1], 1))
    return StoreReport(
        server=server,
        version=version,
        role=str(info.get("role", "")),
        mode=mode,
        problems=tuple(problems),
        shortages=tuple(shortages),
        losses=tuple(losses),
        clock_ms=clock_ms,
        memory_bytes=memory_bytes,
        memory_limit_bytes=limit_bytes,
        durability=durability,
    )


def _memory(info: Mapping[str, Any]) -> tuple[int, int]:
    """Return what a server uses and what it may use, in bytes; without a limit of its own its machine's memory is."""
    limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
    return int(info.get("used_memory", 0)), limit


def _software(info: Mapping[str, Any]) -> tuple[str, str]:
    if "valkey_version" in info:
        return "valkey", str(info["valkey_version"])
    return "redis", str(info.get("redis_version", ""))


def _problems(info: Mapping[str, Any], durability: Durability) -> list[str]:
    server, version = _software(info)
    minimum = (_WITH_WAITAOF if durability.synced else _MINIMUM)[server]
    policy = info.get("maxmemory_policy")
    problems = []
    if _numbers(version) < minimum:
        needed = ".".join(map(str, minimum))
        problems.append(f"The server is {server} {version}, and at least {needed} is needed: upgrade it.")
    if policy != "noeviction":
        problems.append(f"maxmemory-policy is {policy}, so that data may be thrown away: set it to noeviction.")
    if info.get("aof_enabled") != 1:
        problems.append("The append-only file is off, so that a restart loses rewards: set appendonly to yes.")
    if info.get("role") != "master":
        problems.append(f"The server's role is {info.get('role')}, so that it refuses writes: connect to the primary.")
    return problems


def _unkept(durability: Durability, settings: Mapping[str, str]) -> list[str]:
    """Return which settings of a server keep it from a class."""
    policy, replicas = settings.get("appendfsync", "always"), settings.get("min-replicas-to-write")
    problems = []
    if durability.synced and policy != "always":
        problems.append(f"appendfsync is {policy}, so that {durability} takes a second: set it to always.")
    if replicas is not None and int(replicas) < durability.replicas:
        problems.append(
            f"min-replicas-to-write is {replicas}, so that a primary without replicas takes what {durability} "
            f"must not acknowledge: set it to {durability.replicas}."
        )
    return problems


def _shortages(info: Mapping[str, Any], durability: Durability) -> list[str]:
    """Return what a server lacks for a class at this moment."""
    replicas = [info.get(f"slave{number}") for number in range(int(info.get("connected_slaves", 0)))]
    online = sum(isinstance(replica, dict) and replica.get("state") == "online" for replica in replicas)
    if online >= durability.replicas:
        return []
    return [f"{online} of {durability.replicas} replicas follow, so that nothing is acknowledged: look after them."]


def _evictions(info: Mapping[str, Any]) -> list[str]:
    """Return how much a server has thrown away; it keeps the number until it is restarted."""
    evicted = int(info.get("evicted_keys", 0))
    if not evicted:
        return []
    remedy = "restore the bandits that they belonged to, and send CONFIG RESETSTAT to the server"
    return [f"The server has evicted {evicted} keys: {remedy}."]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _name_problem(name: str, problem: str) -> str:
    return f"{name}: {problem}" if name else problem
