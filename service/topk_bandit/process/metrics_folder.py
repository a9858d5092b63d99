"""The temporary folder that the workers of one service count into, and that its supervisor adds up.

`metrics_folder` makes the folder, holds a lock in it as long as the supervisor lives, and removes it at the end. The
kernel releases the lock of a supervisor that is killed, so the next one finds its folder unlocked and removes it. The
folder of a supervisor that lives, or of another user, is never removed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import multiprocess, values

from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.process import exemplars

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client import CollectorRegistry, Metric

__all__ = ["PREFIX", "collect_workers", "forget_worker", "metrics_folder", "share_metrics"]

_log = logging.getLogger(__name__)

PREFIX = "topk-bandit-metrics-"
"""What the names of all folders begin with that are locked or left over."""

_UNLOCKED_PREFIX = "topk-bandit-starting-"
_LOCK = "lock"
_KINDS = ("counter", "histogram", "summary", "gauge_livemax")
_FILE_BYTES = 1 << 20
_EXEMPLARS = "exemplars_"


@contextmanager
def metrics_folder() -> Iterator[Path]:
    """Make an empty folder for this process's workers, and remove those that killed supervisors left.

    Raises
    ------
    ConfigurationError
        The folder for temporary files can't be used.
    """
    try:
        parent = Path(tempfile.gettempdir())
        for folder in parent.glob(f"{PREFIX}*"):
            _remove_if_abandoned(folder)
        unlocked = Path(tempfile.mkdtemp(prefix=_UNLOCKED_PREFIX, dir=parent))
    except OSError as error:
        raise ConfigurationError(f"no temporary folder can be used: {error.strerror}") from error
    with (unlocked / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # It gets its name once it is locked, so that no other process that starts now takes it for abandoned.
        folder = unlocked.rename(parent / unlocked.name.replace(_UNLOCKED_PREFIX, PREFIX, 1))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder of this user whose lock nobody holds; one that can't be examined is left alone."""
    with suppress(OSError):
        if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
            return
        with (folder / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            _log.info("removed the metrics of a service that was killed", extra={"folder": str(folder)})


def share_metrics(folder: Path, *, worker: int) -> None:
    """Make all metrics that this process creates from now on count into its own files in `folder`.

    Parameters
    ----------
    folder
        Exists, is the same for all workers, and had no metrics when the first of them began.
    worker
        This worker's number, different from those of all workers that run. One that takes the place of a dead worker
        takes its number and counts on from where it was: no count goes back, and the files do not pile up.

    Raises
    ------
    ConfigurationError
        There is no space for the files.
    """
    kept = folder / f"{_EXEMPLARS}{worker}"
    counted = {folder / f"{kind}_{worker}.db": _FILE_BYTES for kind in _KINDS}
    _reserve_space({**counted, kept: exemplars.FILE_BYTES})
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    value_class = values.MultiProcessValue(process_identifier=lambda: worker)  # type: ignore[no-untyped-call]
    values.ValueClass = exemplars.keeping_exemplars(value_class, exemplars.ExemplarFile(kept))


def _reserve_space(files: Mapping[Path, int]) -> None:
    """Make files as large as they will be, with all blocks: who writes to a mapped file without them is killed."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        for path, n_bytes in files.items():
            with path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, n_bytes)
    except OSError as error:
        raise ConfigurationError(f"there is no space for metrics in {path.parent}: {error.strerror}") from error


def forget_worker(folder: Path, *, worker: int) -> None:
    """Drop the gauges of a worker that has died; what it counted stays counted."""
    multiprocess.mark_process_dead(worker, str(folder))  # type: ignore[no-untyped-call]


def collect_workers(folder: Path, registry: CollectorRegistry) -> None:
    """Let a registry collect what all workers counted into `folder`, added up, with the newest exemplars of any."""
    counted = _Counted(None, path=str(folder))  # type: ignore[no-untyped-call]
    found = exemplars.read_exemplars(folder.glob(f"{_EXEMPLARS}*"))
    registry.register(exemplars.WithExemplars(counted, found))


class _Counted(multiprocess.MultiProcessCollector):
    """Adds up all files but those that a worker is just making, which have nothing yet; the library reads these too."""

    def collect(self) -> Iterable[Metric]:
        """Return each metric."""
        files = [str(path) for path in Path(self._path).glob("*.db") if _has_something(path)]
        metrics: Iterable[Metric] = self.merge(files, accumulate=True)  # type: ignore[no-untyped-call]
        return metrics


def _has_something(path: Path) -> bool:
    with suppress(FileNotFoundError):  # its worker has died meanwhile
        return path.stat().st_size > 0
    return False
