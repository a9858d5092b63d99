"""The command with all the time that it needs to send its last spans, and to answer its peers.

Worker processes run this file too.
"""

from __future__ import annotations

import sys

from tests.waiting import PATIENCE

from topk_bandit.process import traces
from topk_bandit.rpc import peers

traces.FLUSH_SECONDS = PATIENCE
peers.SILENT_SECONDS = PATIENCE

if __name__ == "__main__":
    from topk_bandit.commands.cli import main

    sys.exit(main())
