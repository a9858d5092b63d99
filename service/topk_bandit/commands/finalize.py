"""The command that puts this program's data version in force: from then on the version before can't take over.

It asks the store itself, with the settings that `serve` would use.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from topk_bandit.commands.printing import print_lines
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.store.embedded import reach_store
from topk_bandit.store.redis.bandits import RedisStore

if TYPE_CHECKING:
    from topk_bandit.process.settings import Settings
    from topk_bandit.store.redis.programs import Finalization

__all__ = ["finalize"]


def finalize(settings: Settings) -> int:
    """Put the data version in force; return 0.

    Raises
    ------
    ConfigurationError
        A worker of the version before runs, or no service has used the store; nothing was changed.
    """
    with ExitStack() as stack:
        url = settings.redis_url or stack.enter_context(reach_store(settings.data_dir, fsync=settings.fsync))
        done = asyncio.run(_finalize_store(settings, url))
    if done.before is None:
        raise ConfigurationError("no service has used this store and key prefix yet: there is nothing to finalize")
    if done.older:
        raise ConfigurationError(
            f"nothing was changed, for workers of the version before run: {', '.join(done.older)}. Stop them first"
        )
    effect = "nothing to finalize" if done.before == done.after else "the version before refuses this store from now on"
    print_lines([f"data version {done.after} is in force: {effect}"], sys.stdout)
    return 0


async def _finalize_store(settings: Settings, url: str) -> Finalization:
    store = await RedisStore.connect(
        url, prefix=settings.key_prefix, timeout=settings.store_timeout_seconds, durability=settings.awaited
    )
    try:
        return await store.programs("", about="").finalize()
    finally:
        await store.close()
