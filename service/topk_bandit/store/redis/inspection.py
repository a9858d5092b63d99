"""What a server must be for the store to keep its promises: its version, role, eviction policy and append-only file.

Each problem is told with what to do about it; nothing on the server is ever changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topk_bandit.store.log import StoreReport

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["report"]

_MINIMUM = {"redis": (7, 0), "valkey": (7, 2)}


def report(infos: Mapping[str, Mapping[str, Any]], *, mode: str, clock_ms: int) -> StoreReport:
    """Return what the servers say of themselves.

    Parameters
    ----------
    infos
        The answer to ``INFO`` of each server that takes writes, by its name; a single one may have an empty name.
    """
    problems = [_named(name, problem) for name, info in infos.items() for problem in _problems(info)]
    info = next(iter(infos.values()))
    server, version = _software(info)
    memory_bytes, limit_bytes = max(map(_memory, infos.values()), key=lambda memory: memory[0] / max(memory[1], 1))
    return StoreReport(
        server=server,
        version=version,
        role=str(info.get("role", "")),
        mode=mode,
        problems=tuple(problems),
        clock_ms=clock_ms,
        memory_bytes=memory_bytes,
        memory_limit_bytes=limit_bytes,
    )


def _memory(info: Mapping[str, Any]) -> tuple[int, int]:
    """Return what a server uses and what it may use, in bytes; without a limit of its own its machine's memory is."""
    limit = int(info.get("maxmemory", 0)) or int(info.get("total_system_memory", 0))
    return int(info.get("used_memory", 0)), limit


def _software(info: Mapping[str, Any]) -> tuple[str, str]:
    if "valkey_version" in info:
        return "valkey", str(info["valkey_version"])
    return "redis", str(info.get("redis_version", ""))


def _problems(info: Mapping[str, Any]) -> list[str]:
    server, version = _software(info)
    minimum = _MINIMUM[server]
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


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _named(name: str, problem: str) -> str:
    return f"{name}: {problem}" if name else problem
