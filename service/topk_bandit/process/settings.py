"""The settings of ``topk-bandit serve``: flags, else environment variables, else a TOML file, else defaults.

Each setting is declared once, as a field of `Settings`; its flag, its variable (``TOPK_BANDIT_`` and its name in
capitals), its key in the file and its help text follow from that. Every value is checked before anything starts, and a
message names the setting and where its value came from. No message and no log ever shows a password of the store's URL.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from topk_bandit.domain.bandits import (
    DEFAULT_BETA_SCALE,
    DEFAULT_NEAR_SHARE,
    DEFAULT_SHARES_FALL_AFTER,
    DEFAULT_UNIFORM_SHARE,
    MOST_SHARES_FALL_AFTER,
    Exploration,
    PaperBeta,
)
from topk_bandit.domain.durability import FSYNC, IN_MEMORY, Durability
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.ids import ID, ID_RULE
from topk_bandit.domain.nearest import find_nearest
from topk_bandit.domain.optional import missing
from topk_bandit.domain.quotas import CALL_QUOTAS, Quota
from topk_bandit.domain.values import read_number
from topk_bandit.store.redis.url import StoreUrl

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Collection, Iterable, Mapping

    from topk_bandit.store.embedded import FsyncPolicy

__all__ = [
    "CALLER_VARIABLES",
    "OTHER_TENANTS",
    "Address",
    "Setting",
    "Settings",
    "add_arguments",
    "default_data_dir",
    "explain",
    "load",
]

OTHER_TENANTS = "other"
"""What stands in metrics for all tenants that `metrics_tenants` does not name."""

_MOST_NAMED_TENANTS = 50

_PREFIX = "TOPK_BANDIT_"

# Which service commands ask, with which key, roots of trust and certificate: an operator's shell may have them while it
# starts or examines one.
CALLER_VARIABLES = (
    "TOPK_BANDIT_ADDRESS",
    "TOPK_BANDIT_KEY",
    "TOPK_BANDIT_TLS_ROOTS",
    "TOPK_BANDIT_CLIENT_CERTIFICATE",
    "TOPK_BANDIT_CLIENT_PRIVATE_KEY",
)

_CONFIG = "config"
_HOST_AND_PORT = re.compile(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:\[\]/]+)):(\d{1,5})", re.ASCII)
_LISTENERS = {
    "listen": "gRPC is",
    "http_listen": "HTTP is",
    "metrics_listen": "metrics are",
    "console_listen": "the console is",
}
_SENDS_TRACES = "opentelemetry.exporter.otlp.proto.http"
_ORIGIN = re.compile(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?", re.ASCII)
_PORT_OF = {"http": 80, "https": 443}

# Kubernetes gives every container such variables for a Service that is called topk-bandit, or topk-bandit-something.
_SERVICE_LINK = re.compile(
    r"(\w+_)?SERVICE_HOST=.*|(\w+_)?SERVICE_PORT(_\w+)?=\d+|(\w+_)?PORT=(tcp|udp|sctp)://.*"
    r"|(\w+_)?PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=.*"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host name or address, and a port (0: any free one)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class _About:
    """How a setting is read; `parse` takes text, a TOML value or its own result; its ValueError names the problem."""

    parse: Callable[[object], object]
    help: str
    metavar: str
    default: str

    @property
    def is_switch(self) -> bool:
        """Whether its flag alone turns it on."""
        return self.parse is _switch


def _setting(
    default: object,
    parse: Callable[[object], object],
    text: str,
    *,
    metavar: str,
    default_text: str = "",
    secret: bool = False,
) -> Any:  # noqa: ANN401 - a field stands for a value of any type
    """Declare a setting; a default that is a function is called each time, and `default_text` is shown for it."""
    about = {"about": _About(parse, text, metavar, default_text or ("none" if default is None else str(default)))}
    if callable(default):
        return field(default_factory=default, metadata=about, repr=not secret)
    return field(default=default, metadata=about, repr=not secret)


def _address(value: object) -> Address:
    if isinstance(value, Address):
        value = str(value)
    match = _HOST_AND_PORT.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"{value!r} is not host:port, with a port up to 65535")
    return Address(host=match[1] or match[2], port=int(match[3]))


def _address_or_off(value: object) -> Address | None:
    return None if value in {"", None} else _address(value)


def _whole(minimum: int, maximum: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        text = str(value).strip()
        if isinstance(value, bool | float) or not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise ValueError(f"{value!r} is not a whole number")
        if not minimum <= int(text) <= maximum:
            raise ValueError(f"{int(text)} is not between {minimum} and {maximum}")
        return int(text)

    return parse


def _limit(maximum: int) -> Callable[[object], int | None]:
    count = _whole(1, maximum)

    def parse(value: object) -> int | None:
        return None if value in {"", None} else count(value)

    return parse


def _real(minimum: float, maximum: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        try:
            number = read_number(value)
        except ValueError:
            number = None
        if number is None:
            raise ValueError(f"{value!r} is not a number")
        if not minimum <= number <= maximum:
            raise ValueError(f"{number:g} is not between {minimum:g} and {maximum:g}")
        return number

    return parse


def _choice(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        for choice in choices:
            if str(value).lower() == choice.lower():
                return choice
        raise ValueError(f"{value!r} is none of {', '.join(choices)}{_suggestion(str(value), choices)}")

    return parse


def _switch(value: object) -> bool:
    word = str(value).lower()
    if word not in {"true", "false"}:
        raise ValueError(f"{value!r} is neither true nor false")
    return word == "true"


def _text(value: object) -> str:
    if not isinstance(value, str | Path):
        raise ValueError(f"{value!r} is not text")  # noqa: TRY004
    if "\0" in str(value):
        raise ValueError("has a NUL character")
    return str(value)


def _path(value: object) -> Path:
    text = _text(value)
    if not text:
        raise ValueError("is empty")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"{text!r} names a home folder that is not known") from None


def _file(value: object) -> Path | None:
    if value in {"", None}:
        return None
    path = _path(value)
    if not path.is_file():
        raise ValueError(f"{str(path)!r} is not a file")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{str(path)!r} can't be read")
    return path


def _split_list(value: object) -> tuple[str, ...]:
    texts = value if isinstance(value, list | tuple) else _text(value).split(",")
    return tuple(text.strip() for text in texts if text.strip())


def _origins(value: object) -> tuple[str, ...]:
    return tuple(origin if origin == "*" else _origin(origin) for origin in _split_list(value))


def _origin(text: str) -> str:
    """Return an origin as browsers send it: in small letters, without the port that its scheme has anyway."""
    found = _ORIGIN.fullmatch(text.lower())
    if found is None or not 0 < int(found[3] or 1) < 65536:
        raise ValueError(f"{text!r} is not an origin such as https://shop.example")
    scheme, host, port = found.groups()
    return f"{scheme}://{host}" + (f":{int(port)}" if port and int(port) != _PORT_OF[scheme] else "")


def _tenants(value: object) -> tuple[str, ...]:
    tenants = tuple(dict.fromkeys(_split_list(value)))
    for tenant in tenants:
        if not ID.fullmatch(tenant):
            raise ValueError(f"{tenant!r} is no tenant: {ID_RULE}")
        if tenant == OTHER_TENANTS:
            raise ValueError(f"{tenant!r} stands for the tenants that are not named")
    if len(tenants) > _MOST_NAMED_TENANTS:
        raise ValueError(f"{len(tenants)} tenants are more than {_MOST_NAMED_TENANTS}")
    return tenants


def _key_prefix(value: object) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,64}", _text(value)):
        raise ValueError(f"{value!r} is not 1 to 64 letters, digits and . _ : -")
    return _text(value)


def _redis_url(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not text")  # noqa: TRY004
    if not value:
        return ""
    return StoreUrl.parse(value).text


def _durability(value: object) -> Durability | None:
    if value is None or isinstance(value, Durability):
        return value
    if value == "":
        return None
    return Durability.parse(str(value))


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Return our folder where this platform keeps a user's data; where a service's, for a user without a home."""
    xdg = environ.get("XDG_DATA_HOME", "")
    if Path(xdg).is_absolute():
        return Path(xdg) / "topk-bandit"
    home = environ.get("HOME", "")
    if not Path(home).is_absolute():
        return Path("/var/lib/topk-bandit")
    mac = sys.platform == "darwin"
    return Path(home) / ("Library/Application Support" if mac else ".local/share") / "topk-bandit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What ``topk-bandit serve`` runs on; every value is checked when it is made.

    Raises
    ------
    ConfigurationError
        A value can't be used; the message names the setting.
    """

    listen: Address = _setting(Address("127.0.0.1", 50051), _address, "where gRPC is served", metavar="HOST:PORT")
    http_listen: Address | None = _setting(
        Address("127.0.0.1", 50080),
        _address_or_off,
        "where the same calls are served over HTTP, as JSON or binary; empty: nowhere",
        metavar="HOST:PORT",
    )
    http_origins: tuple[str, ...] = _setting(
        (),
        _origins,
        "origins whose pages may call over HTTP from a browser, such as https://shop.example, separated by commas; "
        "*: all",
        metavar="ORIGIN,...",
        default_text="none",
    )
    metrics_listen: Address | None = _setting(
        Address("127.0.0.1", 9464),
        _address_or_off,
        "where /metrics, /livez and /readyz are served over HTTP; empty: nowhere",
        metavar="HOST:PORT",
    )
    metrics_tenants: tuple[str, ...] = _setting(
        (),
        _tenants,
        f"tenants whose use is counted apart in /metrics, at most {_MOST_NAMED_TENANTS}, separated by commas",
        metavar="TENANT,...",
        default_text="none",
    )
    console_listen: Address | None = _setting(
        None,
        _address_or_off,
        "where operators look at bandits in a browser, such as 127.0.0.1:50091; empty: nowhere",
        metavar="HOST:PORT",
    )
    workers: int = _setting(1, _whole(1, 256), "how many processes serve calls", metavar="COUNT")
    redis_url: str = _setting(
        "",
        _redis_url,
        "Redis or Valkey to keep the log in (redis://, rediss://, unix://, sentinel://); other users of the "
        "machine can see a password in a flag, but not in a variable",
        metavar="URL",
        default_text="an embedded store in the data folder",
        secret=True,
    )
    data_dir: Path = _setting(
        lambda: default_data_dir(os.environ),
        _path,
        "folder of the embedded store",
        metavar="FOLDER",
        default_text="topk-bandit in the user's data folder",
    )
    fsync: FsyncPolicy = _setting(
        "always",
        _choice("everysec", "always"),
        "when the embedded store's log reaches the disk; 'always' loses nothing even if the store itself is killed "
        "or the power fails",
        metavar="{everysec,always}",
    )
    durability: Durability | None = _setting(
        None,
        _durability,
        "what is awaited before a reward is acknowledged: nothing, the disk of the store, or that and so many replicas",
        metavar="{memory,fsync,replicated:COUNT}",
        default_text="fsync with an embedded store that syncs always, else memory",
    )
    key_prefix: str = _setting("topk-bandit", _key_prefix, "what all keys in the store begin with", metavar="TEXT")
    store_timeout_seconds: float = _setting(
        1.0, _real(0.01, 60.0), "how long one call of the store may take", metavar="SECONDS"
    )
    record_retention_seconds: float = _setting(
        604_800.0, _real(1.0, 31_536_000.0), "how long a closed recommendation is remembered", metavar="SECONDS"
    )
    log_retention_seconds: float = _setting(
        0.0,
        _real(0.0, 31_536_000.0),
        "how long an event stays in the store at least once snapshots stand for it, to be looked at",
        metavar="SECONDS",
    )
    log_retention_bytes: int = _setting(
        268_435_456,
        _whole(67_108_864, 10**12),
        "what a bandit's events that stay so may take, about; beyond that the oldest go",
        metavar="BYTES",
    )
    cold_log_dir: Path | None = _setting(
        None,
        lambda value: None if value in {"", None} else _path(value),
        "folder, which has to be there, that events are written to before they are trimmed; one for all services of a "
        "store; empty: nowhere",
        metavar="FOLDER",
    )
    cold_log_retention_seconds: float | None = _setting(
        None,
        lambda value: None if value in {"", None} else _real(1.0, 3_153_600_000.0)(value),
        "how long files in that folder are kept after their last event",
        metavar="SECONDS",
        default_text="for ever",
    )
    max_calls_in_flight: int = _setting(
        32,
        _whole(1, 100_000),
        "calls that a worker handles at once before it refuses more; rewards and corrections have as many places again",
        metavar="COUNT",
    )
    max_calls_per_second_per_tenant: int | None = _setting(
        None,
        _limit(1_000_000),
        "calls a second that a worker takes with the keys of a tenant, rewards and corrections not counted",
        metavar="COUNT",
    )
    max_rewards_per_second_per_tenant: int | None = _setting(
        None,
        _limit(1_000_000),
        "calls a second with rewards, activations and corrections that a worker takes with the keys of a tenant",
        metavar="COUNT",
    )
    max_calls_in_flight_per_tenant: int | None = _setting(
        None,
        _limit(100_000),
        "how many of the calls that a worker handles at once may be with the keys of one tenant",
        metavar="COUNT",
    )
    max_bandits_per_tenant: int = _setting(
        1000, _whole(1, 1_000_000), "how many bandits a tenant may have", metavar="COUNT"
    )
    max_studies_per_tenant: int = _setting(
        1000, _whole(1, 1_000_000), "how many studies a tenant may have", metavar="COUNT"
    )
    max_items_per_tenant: int | None = _setting(
        None, _limit(10**12), "how many items a tenant's bandits may have together", metavar="COUNT"
    )
    max_open_slates_per_tenant: int | None = _setting(
        None, _limit(10**12), "how many slates of a tenant may await their reward", metavar="COUNT"
    )
    max_log_bytes_per_tenant: int | None = _setting(
        None,
        _limit(10**15),
        "what a tenant's bandits may take in the store: their logs, and all that belongs to them",
        metavar="BYTES",
    )
    quotas_file: Path | None = _setting(
        None,
        _file,
        "file with the quotas of tenants for whom others hold, which is read again when it changes (TOML)",
        metavar="FILE",
    )
    bandit_memory_mib: int = _setting(
        16,
        _whole(8, 65_536),
        "what one bandit's model may take in a worker's memory; how many observations it keeps follows from it",
        metavar="MIB",
    )
    worker_memory_mib: int = _setting(
        6144,
        _whole(8, 16_777_216),
        "what all models of a worker may take; those used least recently rest first, until they are asked for",
        metavar="MIB",
    )
    idle_seconds: float = _setting(
        600.0, _real(1.0, 31_536_000.0), "how long a bandit must be idle for its model to rest", metavar="SECONDS"
    )
    max_message_bytes: int = _setting(
        8_388_608,
        _whole(8_388_608, 1_073_741_824),
        "the largest message that is received or sent; less would refuse what other calls took",
        metavar="BYTES",
    )
    drain_seconds: float = _setting(
        10.0, _real(0.0, 3600.0), "how long calls under way may take to end at a shutdown", metavar="SECONDS"
    )
    beta_scale: float = _setting(
        DEFAULT_BETA_SCALE,
        _real(0.0, 1e6),
        "exploration of a bandit created without one: scale of the confidence bound's growing width",
        metavar="NUMBER",
    )
    uniform_share: float = _setting(
        DEFAULT_UNIFORM_SHARE,
        _real(0.0, 1.0),
        "exploration of a bandit created without one: share of slates that are drawn uniformly",
        metavar="SHARE",
    )
    near_share: float = _setting(
        DEFAULT_NEAR_SHARE,
        _real(0.0, 1.0),
        "exploration of a bandit created without one: share of slates that are drawn from those near the best one",
        metavar="SHARE",
    )
    shares_fall_after: int = _setting(
        DEFAULT_SHARES_FALL_AFTER,
        _whole(0, MOST_SHARES_FALL_AFTER),
        "exploration of a bandit created without one: learned rewards after which these shares fall, 0 for never",
        metavar="REWARDS",
    )
    log_level: str = _setting(
        "INFO",
        _choice("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        "the least severe records to log",
        metavar="LEVEL",
    )
    log_format: Literal["json", "text"] = _setting(
        "json", _choice("json", "text"), "how log records are written", metavar="{json,text}"
    )
    traces: bool = _setting(
        False,  # noqa: FBT003 - it is what is set
        _switch,
        "send spans of calls to an OpenTelemetry collector, as OpenTelemetry's own variables say, such as "
        "OTEL_EXPORTER_OTLP_ENDPOINT; needs topk-bandit[traces]",
        metavar="{true,false}",
        default_text="false",
    )
    tls_certificate: Path | None = _setting(
        None,
        _file,
        "file with the server's certificate chain (PEM); gRPC and HTTP are encrypted with it",
        metavar="FILE",
    )
    tls_private_key: Path | None = _setting(
        None, _file, "file with the certificate's private key (PEM)", metavar="FILE"
    )
    keys_file: Path | None = _setting(
        None,
        _file,
        "file with the keys of those who may call, which `topk-bandit keys` writes; without it everybody may do all",
        metavar="FILE",
    )
    tls_client_ca: Path | None = _setting(
        None,
        _file,
        "file with the authorities (PEM) of callers' certificates: with it, nobody connects without one",
        metavar="FILE",
    )
    client_identities: Path | None = _setting(
        None,
        _file,
        "file that says for whom each name in callers' certificates calls, so that they need no key, and which is read "
        "again when it changes (TOML)",
        metavar="FILE",
    )
    answer_links: bool = _setting(
        False,  # noqa: FBT003 - it is what is set
        _switch,
        "let people who have a link of a study answer its questions without a key, on the page /ask of --http-listen",
        metavar="{true,false}",
        default_text="false",
    )
    insecure: bool = _setting(
        False,  # noqa: FBT003 - it is what is set
        _switch,
        "serve other machines also without keys or TLS",
        metavar="{true,false}",
        default_text="false",
    )

    def __post_init__(self) -> None:
        for declared in fields(self):
            value = _parse(declared, getattr(self, declared.name), origin=None)
            object.__setattr__(self, declared.name, value)
        _check_together(_values_of(self), {})

    @property
    def default_exploration(self) -> Exploration:
        """How a bandit explores that was created without saying."""
        return Exploration(PaperBeta(self.beta_scale), self.uniform_share, self.near_share, self.shares_fall_after)

    @property
    def default_quotas(self) -> dict[Quota, int]:
        """What a tenant may use that has no quotas of its own; what is missing is unlimited."""
        limits = {quota: getattr(self, f"max_{quota}_per_tenant") for quota in Quota}
        return {quota: limit for quota, limit in limits.items() if limit is not None}

    @property
    def knows_callers(self) -> bool:
        """Whether callers show who they are, by keys or certificates."""
        return self.keys_file is not None or self.client_identities is not None

    @property
    def awaited(self) -> Durability:
        """What is awaited before a write is acknowledged."""
        if self.durability is not None:
            return self.durability
        return IN_MEMORY if self.redis_url or self.fsync != "always" else FSYNC

    def redact(self) -> dict[str, str]:
        """Return all settings as text, for logs and people, without any secret."""
        shown = {name: _write_value(value) for name, value in _values_of(self).items()}
        return shown | {"redis_url": str(StoreUrl.parse(self.redis_url)) if self.redis_url else ""}


def _write_value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    return "" if value is None else str(value)


def _values_of(settings: Settings) -> dict[str, object]:
    """Return the settings by name."""
    return {declared.name: getattr(settings, declared.name) for declared in fields(settings)}


def _parse(declared: Field[object], value: object, *, origin: str | None) -> object:
    try:
        return _of(declared).parse(value)
    except ValueError as error:
        raise ConfigurationError(f"{_name_with_origin(declared.name, origin)}: {error}") from None


def _of(declared: Field[object]) -> _About:
    return cast("_About", declared.metadata["about"])


def _name_with_origin(name: str, origin: str | None) -> str:
    return name if origin is None else f"{name} (from {origin})"


def _check_together(values: Mapping[str, object], origins: Mapping[str, str]) -> None:
    """Refuse values that are good by themselves and not together."""
    for one, other in (("tls_certificate", "tls_private_key"), ("tls_private_key", "tls_certificate")):
        if values.get(one) is not None and values.get(other) is None:
            raise ConfigurationError(
                f"{_name_with_origin(one, origins.get(one))}: {other} is missing; set both or neither"
            )
    most, all_of_them = values.get("bandit_memory_mib"), values.get("worker_memory_mib")
    if isinstance(most, int) and isinstance(all_of_them, int) and most > all_of_them:
        name = _name_with_origin("worker_memory_mib", origins.get("worker_memory_mib"))
        raise ConfigurationError(f"{name}: {all_of_them} is less than bandit_memory_mib, {most}")
    _check_client_certificates(values, origins)
    _check_durability(values, origins)
    _check_traces(values, origins)
    _check_call_quotas(values, origins)
    taken: dict[object, str] = {}
    for name, what in _LISTENERS.items():
        address = values.get(name)
        if not isinstance(address, Address) or address.port == 0:
            continue
        if address in taken:
            raise ConfigurationError(
                f"{_name_with_origin(name, origins.get(name))}: {address} is where {taken[address]} served"
            )
        taken[address] = what


def _check_client_certificates(values: Mapping[str, object], origins: Mapping[str, str]) -> None:
    """Refuse names of callers where nobody asks for them."""
    for one, needed in (("client_identities", "tls_client_ca"), ("tls_client_ca", "tls_certificate")):
        if values.get(one) is not None and values.get(needed) is None:
            raise ConfigurationError(f"{_name_with_origin(one, origins.get(one))}: needs {needed}")


def _check_durability(values: Mapping[str, object], origins: Mapping[str, str]) -> None:
    """Refuse a class that the embedded store can't keep."""
    wanted = values.get("durability")
    if not isinstance(wanted, Durability) or values.get("redis_url"):
        return
    name = _name_with_origin("durability", origins.get("durability"))
    if wanted.replicas:
        raise ConfigurationError(f"{name}: the embedded store has no replicas for {wanted}; give a redis_url")
    if wanted.synced and values.get("fsync") == "everysec":
        raise ConfigurationError(f"{name}: {wanted} needs fsync always, not everysec")


def _check_traces(values: Mapping[str, object], origins: Mapping[str, str]) -> None:
    """Refuse to send what needs packages that are not installed."""
    name = _name_with_origin("traces", origins.get("traces"))
    if values.get("traces") and (problem := missing(_SENDS_TRACES, name, extra="traces")):
        raise ConfigurationError(problem)


def _check_call_quotas(values: Mapping[str, object], origins: Mapping[str, str]) -> None:
    """Refuse quotas of calls where nobody knows whose calls they are."""
    for quota in CALL_QUOTAS:
        name = f"max_{quota}_per_tenant"
        nobody = values.get("keys_file") is None and values.get("client_identities") is None
        if values.get(name) is not None and nobody:
            needed = "needs keys_file or client_identities, to know whose calls they are"
            raise ConfigurationError(f"{_name_with_origin(name, origins.get(name))}: {needed}")


def _suggestion(word: str, known: Iterable[str]) -> str:
    near = find_nearest(word, known)
    return "" if near is None else f"; did you mean {near}?"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return _PREFIX + name.upper()


def add_arguments(parser: ArgumentParser, *, names: Collection[str] | None = None) -> None:
    """Give a parser ``--config`` and a flag per setting, or per named one. Values stay text until `load` checks them.

    Parameters
    ----------
    names
        Settings that the command needs; all of them by default.
    """
    parser.add_argument(
        _flag(_CONFIG), metavar="FILE", help=f"TOML file with settings (environment: {_variable(_CONFIG)})"
    )
    for declared in fields(Settings):
        if names is not None and declared.name not in names:
            continue
        about = _of(declared)
        text = f"{about.help} (default: {about.default}; environment: {_variable(declared.name)})"
        alone: dict[str, Any] = {"nargs": "?", "const": "true"} if about.is_switch else {}
        parser.add_argument(_flag(declared.name), metavar=about.metavar, help=text.replace("%", "%%"), **alone)


class Setting(NamedTuple):
    """A setting as a person reads it: its value without any secret, and the flag, variable or file that it is from."""

    name: str
    value: str
    origin: str


def explain(namespace: Namespace, environ: Mapping[str, str]) -> list[Setting]:
    """Return each setting with its value and where that came from; see `load`."""
    given = _gather_values(namespace, environ)
    shown = _settings(given, environ).redact()
    return [Setting(name, value, given[name][1] if name in given else "default") for name, value in shown.items()]


def load(namespace: Namespace, environ: Mapping[str, str]) -> Settings:
    """Put the settings together: flags, else variables, else the file, else defaults.

    Parameters
    ----------
    namespace
        What a parser with `add_arguments` returned; other attributes are left alone.
    environ
        The environment.

    Raises
    ------
    ConfigurationError
        A value can't be used, or a key or variable is none of ours; the message says which and where it came from.
    """
    return _settings(_gather_values(namespace, environ), environ)


def _gather_values(namespace: Namespace, environ: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    """Return the values that somebody gave, each with where it came from."""
    variables = _variables(environ)
    flags = {name: value for name in _names() if (value := getattr(namespace, name, None)) is not None}
    config_variable = variables.pop(_CONFIG, None)
    config = getattr(namespace, _CONFIG, None) or config_variable
    keys = _file_keys(Path(config)) if config else {}
    given: dict[str, tuple[object, str]] = {name: (value, f"{config}, key {name}") for name, value in keys.items()}
    given |= {name: (value, f"variable {_variable(name)}") for name, value in variables.items()}
    given |= {name: (value, f"flag {_flag(name)}") for name, value in flags.items()}
    return given


def _settings(given: Mapping[str, tuple[object, str]], environ: Mapping[str, str]) -> Settings:
    values: dict[str, Any] = {"data_dir": default_data_dir(environ)}
    for declared in fields(Settings):
        if declared.name in given:
            value, origin = given[declared.name]
            values[declared.name] = _parse(declared, value, origin=origin)
    _check_together(values, {name: origin for name, (_, origin) in given.items()})
    return Settings(**values)


def _names() -> list[str]:
    return [declared.name for declared in fields(Settings)]


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings among the variables; one that looks like ours and is not is refused."""
    known = {_variable(name): name for name in (*_names(), _CONFIG)}
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or variable in known or variable in CALLER_VARIABLES:
            continue
        if not _SERVICE_LINK.fullmatch(f"{variable.removeprefix(_PREFIX)}={value}"):
            raise ConfigurationError(f"variable {variable} is no setting{_suggestion(variable, known)}")
    return {name: environ[variable] for variable, name in known.items() if variable in environ}


def _file_keys(path: Path) -> dict[str, object]:
    """Return the keys of a file; one that is no setting is refused."""
    try:
        keys: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"config file {path} can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"config file {path} is not TOML: {error}") from None
    for key, value in keys.items():
        if isinstance(value, dict) and key not in _names():
            raise ConfigurationError(f"config file {path}: [{key}]: settings stand at the top, in no table")
        if key not in _names():
            raise ConfigurationError(f"config file {path}: {key!r} is no setting{_suggestion(key, _names())}")
    return keys
