"""Build the image where no registry can be reached, start it hardened, and compare with what is promised.

`make image-check` builds `deploy/Containerfile` with buildah, without a daemon, on a base that mmdebstrap makes of
Debian's packages and that has Debian's Python, where the image itself has `python:3.12-slim`. Then it starts the image
twice, as a cluster that trusts nobody would: a root that is read only, a random user without rights, no network but
loopback, half a core, and empty volumes. The second time one of them is for compiled code.

All that is mounted, in memory, is in namespaces of its own, which end with the check. It needs root, buildah,
mmdebstrap, some 3 GB of memory, and the mirrors of Debian and PyPI (`PIP_INDEX_URL` and `PIP_CERT` go to pip). Where it
can't run it says why, and ends with status 0; with status 1 where a limit is missed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["LARGEST_MB", "LONGEST_START_SECONDS", "main"]

ROOT = Path(__file__).resolve().parents[1]
LARGEST_MB = 500
LONGEST_START_SECONDS = 60.0
CORES = 0.5
PERIOD_MICROSECONDS = 100_000

_PROGRAMS = ("buildah", "chroot", "mmdebstrap", "mount", "unshare")
_SUITE = "bookworm"
_PACKAGES = "usr-is-merged,python3,python3-venv,python-is-python3"
_UNREAD = ("doc", "man", "locale")  # images of Debian come without them
_CACHE = "var/cache/topk-bandit"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_COMPILES = "compiles for this processor"
_SERVICE = "topk_bandit.v1"
_SHOP = "tenants/shop/bandits/home"


class MissedError(Exception):
    """Something that is promised does not hold; the message says what."""


def run(*command: str | Path) -> str:
    """Run a command, and return what it wrote; an error has it too."""
    words = list(map(str, command))
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise MissedError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout.strip()


def why_not() -> str | None:
    """Return why the check can't run here; None where it can."""
    if os.geteuid() != 0:
        return "it needs root"
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)}: not installed"
    mount = ["unshare", "--mount", "--pid", "--fork", "--net", "mount", "-t", "tmpfs", "none", "/mnt"]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        return "nothing may be mounted"
    with tempfile.TemporaryDirectory() as name, half_a_core(Path(name).name) as group:
        return None if group else "no control group may be made, which half a core needs"


@contextlib.contextmanager
def half_a_core(name: str) -> Iterator[Path | None]:
    """Have a control group whose processes get half a core together; None where none can be made."""
    quota = int(CORES * PERIOD_MICROSECONDS)
    first, second = Path("/sys/fs/cgroup/cpu") / name, Path("/sys/fs/cgroup") / name
    group, limits = second, {"cpu.max": f"{quota} {PERIOD_MICROSECONDS}"}
    if first.parent.is_dir():
        group, limits = first, {"cpu.cfs_period_us": f"{PERIOD_MICROSECONDS}", "cpu.cfs_quota_us": f"{quota}"}
    try:
        group.mkdir()
        for file, limit in limits.items():
            (group / file).write_text(limit)
    except OSError:
        group_or_none = None
    else:
        group_or_none = group
    try:
        yield group_or_none
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


def check() -> int:
    """Run the check in namespaces of its own."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="topk-bandit-image-"))
    try:
        with half_a_core(folder.name) as group:
            command = [sys.executable, __file__, "inside", str(folder), str(group)]
            unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
            return subprocess.run([*unshare, *command], check=False).returncode
    finally:
        folder.rmdir()


def inside(folder: Path, group: Path) -> int:
    """Build the image, measure it, and start it."""
    mount("-t", "tmpfs", "-o", "size=4g", "none", folder)
    (folder / "tmp").mkdir()
    os.environ["TMPDIR"] = str(folder / "tmp")
    buildah = Buildah(folder)
    try:
        timed("the base was made", buildah.make_base)
        timed("the image was built", buildah.build)
        root, configuration = buildah.mounted()
        measure(root, buildah.base)
        for volumes in (("tmp", "data"), ("tmp", "data", _CACHE)):
            start_hardened(root, volumes, configuration, group)
    except MissedError as error:
        print(f"MISSED: {error}")
        return 1
    return 0


def timed(what: str, step: Callable[[], None]) -> None:
    """Do a step, and print how long it took."""
    began = time.monotonic()
    step()
    print(f"{what} in {time.monotonic() - began:.0f} s", flush=True)


class Buildah:
    """Builds images in a folder, without a daemon."""

    def __init__(self, folder: Path) -> None:
        self.base = folder / "base.tar"
        places = ("--root", folder / "images", "--runroot", folder / "run")
        self._program = ("buildah", *places, "--storage-driver", "overlay")

    def __call__(self, *arguments: str | Path) -> str:
        """Return what a command of buildah wrote."""
        return run(*self._program, *arguments)

    def make_base(self) -> None:
        """Make an image of Debian and its Python, for want of a registry."""
        options = ["--variant=minbase", f"--include={_PACKAGES}", "--dpkgopt=force-unsafe-io"]
        options.append("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr")
        unread = " ".join(f'"$1"/usr/share/{name}/*' for name in _UNREAD)
        run("mmdebstrap", *options, f"--customize-hook=rm -rf {unread}", _SUITE, self.base)
        self("from", "--name", "base", "scratch")
        self("add", "base", self.base, "/")
        self("commit", "--quiet", "--rm", "base", "localhost/base")

    def build(self) -> None:
        """Build the Containerfile as it is; only its base is another one."""
        given = {name: os.environ[name] for name in ("PIP_INDEX_URL", "PIP_CERT") if os.environ.get(name)}
        arguments = {"BASE": "localhost/base", **given}
        options = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
        if "PIP_CERT" in given:
            folder = Path(given["PIP_CERT"]).parent
            options += ["--volume", f"{folder}:{folder}:ro"]
        file = ROOT / "deploy" / "Containerfile"
        self("bud", "--isolation", "chroot", "--format", "docker", *options, "--file", file, "--tag", "image", ROOT)

    def mounted(self) -> tuple[Path, dict[str, Any]]:
        """Return the image's root, mounted, and how a container of it is run."""
        configuration = json.loads(self("inspect", "--type", "image", "image"))["Docker"]["config"]
        self("from", "--name", "container", "image")
        return Path(self("mount", "container")), configuration


def measure(root: Path, base: Path) -> None:
    """Print the size of all files of the image, and examine what else has to be in it."""
    files = {(found.st_dev, found.st_ino): found.st_size for found in map(os.lstat, entries(root))}
    size = sum(files.values()) / 1e6
    print(f"size: {size:.0f} MB, of which the base has some {base.stat().st_size / 1e6:.0f} (limit: {LARGEST_MB})")
    components = json.loads((root / "usr/share/sbom/topk-bandit.cdx.json").read_text())["components"]
    compiled = list((root / "opt/topk-bandit/compiled").glob("*/*.nbi"))
    print(f"in it: {len(compiled)} compiled functions, a list of {len(components)} packages", flush=True)
    if size >= LARGEST_MB:
        raise MissedError(f"the image has {size:.0f} MB")
    if len(compiled) < 40 or len(components) < 20:
        raise MissedError("compiled code or the list of packages is missing")


def entries(root: Path) -> Iterator[str]:
    """Yield all that is in a root but folders."""
    for folder, _, names in os.walk(root):
        yield from (os.path.join(folder, name) for name in names)  # noqa: PTH118 - there are many


def start_hardened(root: Path, volumes: Sequence[str], configuration: dict[str, Any], group: Path) -> None:
    """Start the image in namespaces without a network."""
    for volume in volumes:
        (root / volume).mkdir(parents=True, exist_ok=True)
    given = json.dumps({"volumes": volumes, "group": str(group), "configuration": configuration})
    unshare = ["unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child"]
    print(run(*unshare, sys.executable, __file__, "start", root, given), flush=True)


def start(root: Path, volumes: Sequence[str], configuration: dict[str, Any], group: Path) -> int:
    """Start the service in a root that can't be written, call it, and stop it."""
    up("lo")
    harden(root, volumes)
    user = random.randrange(100_000, 2**31)  # noqa: S311 - any that nothing in the image knows
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as log, running(root, user, configuration, group, log.fileno()) as service:
        try:
            until_ready(service)
            seconds = time.monotonic() - began
            examine(root, user, service.pid, group)
            shown = use()
            service.terminate()
            status = service.wait(60)
        except Exception as error:
            log.seek(0)
            raise MissedError(f"{error}\n{log.read()[-6000:]}") from error
        log.seek(0)
        lines = log.read()
    print(f"ready: after {seconds:.1f} s (limit: {LONGEST_START_SECONDS:.0f}), as user {user} on {CORES} cores", end="")
    print(f" with volumes at {', '.join(f'/{one}' for one in volumes)}; its first slate: {' '.join(shown)}")
    if status or seconds > LONGEST_START_SECONDS or _COMPILES in lines:
        raise MissedError(f"it was late, compiled or ended with status {status}:\n{lines[-6000:]}")
    return 0


def up(interface: str) -> None:
    """Let a network's interface take packets: in a new network not even loopback does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request, is_up, set_flags = struct.Struct("16sh"), 1, 0x8914
        fcntl.ioctl(any_socket, set_flags, request.pack(interface.encode(), is_up))


def mount(*arguments: str | Path) -> None:
    """Mount something."""
    run("mount", *arguments)


def harden(root: Path, volumes: Sequence[str]) -> None:
    """Make a root read only, with what any container finds in it, and with empty volumes."""
    mount("--bind", root, root)
    mount("-t", "proc", "proc", root / "proc")
    mount("-t", "tmpfs", "-o", "mode=755", "none", root / "dev")
    for name in _DEVICES:
        (root / "dev" / name).touch()
        mount("--bind", f"/dev/{name}", root / "dev" / name)
    (root / "dev/shm").mkdir()
    for folder in ("dev/shm", *volumes):
        mount("-t", "tmpfs", "-o", "mode=1777,size=256m", "none", root / folder)
    mount("-o", "remount,ro,bind", root)


@contextlib.contextmanager
def running(
    root: Path, user: int, configuration: dict[str, Any], group: Path, log: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the image's entry point as a user without any right, on half a core."""
    ids = [f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    rights = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    variables = dict(pair.split("=", 1) for pair in configuration["Env"]) | {"TOPK_BANDIT_INSECURE": "true"}
    command = [str(shutil.which("chroot")), str(root), "/usr/bin/setpriv", *ids, *rights, *configuration["Entrypoint"]]
    limited = ["sh", "-c", f'echo 0 > {group}/cgroup.procs; exec "$@"', "limited", *command]
    with subprocess.Popen(limited, env=variables, stdout=log, stderr=log) as service:
        try:
            yield service
        finally:
            service.kill()


def until_ready(service: subprocess.Popen[bytes]) -> None:
    """Wait until the service takes calls."""
    last = time.monotonic() + 2 * LONGEST_START_SECONDS
    while time.monotonic() < last:
        if service.poll() is not None:
            raise MissedError(f"it ended with status {service.returncode}")
        with contextlib.suppress(OSError), urllib.request.urlopen("http://127.0.0.1:9464/readyz", timeout=5):
            return
        time.sleep(0.1)
    raise MissedError("it was not ready in time")


def examine(root: Path, user: int, process: int, group: Path) -> None:
    """Raise if the service has more than it was to have."""
    lines = (root / "proc" / str(process) / "status").read_text().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    rights = {name: int(status[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    if any(rights.values()) or status["Uid"] != [f"{user}"] * 4 or status["NoNewPrivs"] != ["1"]:
        raise MissedError(f"it has rights: {rights} {status['Uid']} {status['NoNewPrivs']}")
    if not os.statvfs(root).f_flag & os.ST_RDONLY:
        raise MissedError("its root can be written")
    if str(process) not in (group / "cgroup.procs").read_text().split():
        raise MissedError("it is not in the control group that keeps it to half a core")
    see_throttled(group)


def see_throttled(group: Path) -> None:
    """Raise unless a control group keeps what is in it to half a core.

    Two loops join it: on a machine that others keep busy the service alone may never want as much.
    """
    loop = ["sh", "-c", f"echo 0 > {group}/cgroup.procs; while :; do :; done"]
    loops = [subprocess.Popen(loop) for _ in range(2)]
    try:
        last = time.monotonic() + 2 * LONGEST_START_SECONDS
        while not re.search(r"^nr_throttled [1-9]", (group / "cpu.stat").read_text(), re.MULTILINE):
            if time.monotonic() > last:
                raise MissedError("nothing keeps it to half a core")
            time.sleep(0.1)
    finally:
        for one in loops:
            one.kill()
            one.wait()


def use() -> list[str]:
    """Make a bandit, and return its first slate."""
    call("BanditService/CreateBandit", {"bandit": {"name": _SHOP, "slateSize": 2, "itemCapacity": 50}})
    call(
        "BanditService/UpsertItems", {"bandit": _SHOP, "items": [{"itemId": one} for one in ("tea", "coffee", "milk")]}
    )
    slate: list[str] = call("RecommenderService/Recommend", {"bandit": _SHOP})["itemIds"]
    return slate


def call(method: str, message: dict[str, Any]) -> dict[str, Any]:
    """Call the service over HTTP."""
    address = f"http://127.0.0.1:50080/{_SERVICE}.{method}"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(message).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the address above
        answered: dict[str, Any] = json.load(answer)
    return answered


def main(arguments: Sequence[str]) -> int:
    """Run the check, or a part of it in its namespaces."""
    match arguments:
        case ["inside", folder, group]:
            return inside(Path(folder), Path(group))
        case ["start", root, given]:
            options = json.loads(given)
            return start(Path(root), options["volumes"], options["configuration"], Path(options["group"]))
    reason = why_not()
    if reason is not None:
        print(f"The image is not checked here: {reason}.")
        return 0
    return check()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
