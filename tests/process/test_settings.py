"""Settings from flags, variables and a file, and what is said about a bad one."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any, get_args

import pytest

from topk_bandit.domain.bandits import Exploration, PaperBeta
from topk_bandit.domain.durability import FSYNC, IN_MEMORY, Durability
from topk_bandit.domain.errors import ConfigurationError
from topk_bandit.domain.quotas import CALL_QUOTAS, Quota
from topk_bandit.process import settings as module
from topk_bandit.process.logs import LogFormat
from topk_bandit.process.settings import Address, Settings, add_arguments, default_data_dir, load
from topk_bandit.store.embedded import FsyncPolicy

HOME = {"HOME": "/home/someone"}
NAMES = [field.name for field in fields(Settings)]

GOOD: dict[str, tuple[str, object]] = {
    "listen": ("0.0.0.0:8443", Address("0.0.0.0", 8443)),
    "http_listen": ("[::]:8080", Address("::", 8080)),
    "http_origins": (
        "https://SHOP.example:443, http://localhost:3000, http://[::1]:80, *",
        ("https://shop.example", "http://localhost:3000", "http://[::1]", "*"),
    ),
    "metrics_listen": ("[::1]:0", Address("::1", 0)),
    "metrics_tenants": ("acme, shop.eu,acme", ("acme", "shop.eu")),
    "console_listen": ("127.0.0.1:50090", Address("127.0.0.1", 50090)),
    "workers": ("4", 4),
    "redis_url": ("rediss://user:p%40ss@example.org:6380/2", "rediss://user:p%40ss@example.org:6380/2"),
    "fsync": ("always", "always"),
    "durability": ("fsync", FSYNC),
    "key_prefix": ("shop:eu", "shop:eu"),
    "store_timeout_seconds": ("0.25", 0.25),
    "record_retention_seconds": ("3600", 3600.0),
    "log_retention_seconds": ("86400", 86_400.0),
    "log_retention_bytes": ("1000000000", 1_000_000_000),
    "cold_log_dir": ("/srv/cold", Path("/srv/cold")),
    "cold_log_retention_seconds": ("2592000", 2_592_000.0),
    "max_calls_in_flight": ("8", 8),
    "max_bandits_per_tenant": ("9", 9),
    "max_studies_per_tenant": ("7", 7),
    "max_items_per_tenant": ("5000", 5000),
    "max_open_slates_per_tenant": ("1000000", 1_000_000),
    "max_log_bytes_per_tenant": ("1000000000", 1_000_000_000),
    "bandit_memory_mib": ("32", 32),
    "worker_memory_mib": ("2048", 2048),
    "idle_seconds": ("60", 60.0),
    "max_message_bytes": ("9000000", 9_000_000),
    "drain_seconds": ("0", 0.0),
    "beta_scale": ("0.5", 0.5),
    "uniform_share": ("0", 0.0),
    "near_share": ("0.25", 0.25),
    "shares_fall_after": ("40", 40),
    "log_level": ("debug", "DEBUG"),
    "log_format": ("text", "text"),
    "traces": ("true", True),
    "insecure": ("True", True),
    "answer_links": ("true", True),
}

FILES_AND_THEIRS = {
    "data_dir",
    "tls_certificate",
    "tls_private_key",
    "tls_client_ca",
    "client_identities",
    "keys_file",
    "quotas_file",
    *(f"max_{quota}_per_tenant" for quota in CALL_QUOTAS),
}

BAD = [
    ("listen", "50051", "'50051' is not host:port"),
    ("listen", "", "'' is not host:port"),
    ("listen", "::1:50051", "is not host:port"),
    ("listen", "localhost:65536", "with a port up to 65535"),
    ("listen", "localhost:-1", "is not host:port"),
    ("http_listen", "8080", "is not host:port"),
    ("http_origins", "shop.example", "'shop.example' is not an origin such as https://shop.example"),
    ("http_origins", "https://shop.example/", "is not an origin"),
    ("http_origins", "https://shop.example:65536", "is not an origin"),
    ("metrics_tenants", "acme,*", "'*' is no tenant"),
    ("metrics_tenants", "other", "'other' stands for the tenants that are not named"),
    ("metrics_tenants", ",".join(f"t{number}" for number in range(51)), "51 tenants are more than 50"),
    ("metrics_listen", "http://localhost:1", "is not host:port"),
    ("console_listen", "console", "is not host:port"),
    ("workers", "two", "'two' is not a whole number"),
    ("workers", "", "'' is not a whole number"),
    ("workers", "0", "0 is not between 1 and 256"),
    ("workers", "1.5", "'1.5' is not a whole number"),
    ("redis_url", "http://localhost", "is not a URL like redis://host:port/0"),
    ("redis_url", "redis://", "is not a URL like"),
    ("redis_url", "unix://", "is not a URL like"),
    ("redis_url", "sentinel://host:26379", "or sentinel://host:port,host:port/service-name"),
    ("data_dir", "", "is empty"),
    ("data_dir", "a\0b", "has a NUL character"),
    ("durability", "disk", "'disk' is none of memory, fsync, replicated:1 to replicated:9"),
    ("durability", "replicated:0", "'replicated:0' is none of"),
    ("durability", "replicated:1", "the embedded store has no replicas for replicated:1; give a redis_url"),
    ("fsync", "alway", "'alway' is none of everysec, always; did you mean always?"),
    ("key_prefix", "{shop}", "'{shop}' is not 1 to 64 letters"),
    ("key_prefix", "", "'' is not 1 to 64 letters"),
    ("store_timeout_seconds", "0", "0 is not between 0.01 and 60"),
    ("store_timeout_seconds", "nan", "'nan' is not a number"),
    ("record_retention_seconds", "inf", "'inf' is not a number"),
    ("log_retention_seconds", "-1", "-1 is not between 0 and 3.1536e+07"),
    ("log_retention_bytes", "1000", "1000 is not between 67108864 and 1000000000000"),
    ("cold_log_dir", "a\0b", "has a NUL character"),
    ("cold_log_retention_seconds", "0", "0 is not between 1 and 3.1536e+09"),
    ("max_calls_in_flight", "-1", "-1 is not between 1 and"),
    ("max_bandits_per_tenant", "1e3", "'1e3' is not a whole number"),
    ("max_studies_per_tenant", "0", "0 is not between 1 and"),
    ("max_items_per_tenant", "0", "0 is not between 1 and"),
    ("max_open_slates_per_tenant", "many", "'many' is not a whole number"),
    ("max_log_bytes_per_tenant", "1GB", "'1GB' is not a whole number"),
    ("max_calls_per_second_per_tenant", "0", "0 is not between 1 and"),
    ("max_calls_per_second_per_tenant", "9", "needs keys_file or client_identities, to know whose calls they are"),
    ("max_rewards_per_second_per_tenant", "9", "needs keys_file or client_identities, to know whose calls they are"),
    ("max_calls_in_flight_per_tenant", "9", "needs keys_file or client_identities, to know whose calls they are"),
    ("quotas_file", "/nowhere.toml", "'/nowhere.toml' is not a file"),
    ("bandit_memory_mib", "7", "7 is not between 8 and 65536"),
    ("worker_memory_mib", "6GB", "'6GB' is not a whole number"),
    ("idle_seconds", "0", "0 is not between 1 and 3.1536e+07"),
    ("max_message_bytes", "4MB", "'4MB' is not a whole number"),
    ("max_message_bytes", "4194304", "4194304 is not between 8388608 and 1073741824"),
    ("drain_seconds", "-0.1", "-0.1 is not between 0 and 3600"),
    ("beta_scale", "-1", "-1 is not between 0 and"),
    ("uniform_share", "2%", "'2%' is not a number"),
    ("uniform_share", "1.01", "1.01 is not between 0 and 1"),
    ("near_share", "-0.1", "-0.1 is not between 0 and 1"),
    ("shares_fall_after", "-1", "-1 is not between 0 and 1000000000"),
    ("log_level", "verbose", "'verbose' is none of DEBUG, INFO"),
    ("log_format", "jsonl", "'jsonl' is none of json, text; did you mean json?"),
    ("tls_certificate", "/nowhere.pem", "'/nowhere.pem' is not a file"),
    ("tls_private_key", "/", "'/' is not a file"),
    ("tls_client_ca", "/nowhere.pem", "'/nowhere.pem' is not a file"),
    ("client_identities", "/nowhere.toml", "'/nowhere.toml' is not a file"),
    ("keys_file", "/nowhere.json", "'/nowhere.json' is not a file"),
    ("traces", "http://collector:4318", "'http://collector:4318' is neither true nor false"),
    ("insecure", "yes", "'yes' is neither true nor false"),
    ("answer_links", "1", "'1' is neither true nor false"),
]


def read(*arguments: str, environ: dict[str, str] | None = None) -> Settings:
    parser = ArgumentParser()
    add_arguments(parser)
    return load(parser.parse_args(arguments), HOME | (environ or {}))


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    return "TOPK_BANDIT_" + name.upper()


def toml(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "topk-bandit.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_defaults() -> None:
    assert read() == Settings(
        listen=Address("127.0.0.1", 50051),
        http_listen=Address("127.0.0.1", 50080),
        http_origins=(),
        metrics_listen=Address("127.0.0.1", 9464),
        metrics_tenants=(),
        console_listen=None,
        workers=1,
        redis_url="",
        data_dir=default_data_dir(HOME),
        fsync="always",
        key_prefix="topk-bandit",
        store_timeout_seconds=1.0,
        record_retention_seconds=7 * 24 * 3600.0,
        log_retention_seconds=0.0,
        log_retention_bytes=268_435_456,
        cold_log_dir=None,
        cold_log_retention_seconds=None,
        max_calls_in_flight=32,
        max_calls_per_second_per_tenant=None,
        max_rewards_per_second_per_tenant=None,
        max_calls_in_flight_per_tenant=None,
        max_bandits_per_tenant=1000,
        max_studies_per_tenant=1000,
        max_items_per_tenant=None,
        max_open_slates_per_tenant=None,
        max_log_bytes_per_tenant=None,
        quotas_file=None,
        bandit_memory_mib=16,
        worker_memory_mib=6144,
        idle_seconds=600.0,
        max_message_bytes=8 * 1024 * 1024,
        drain_seconds=10.0,
        beta_scale=0.1,
        uniform_share=0.01,
        near_share=0.04,
        shares_fall_after=500,
        log_level="INFO",
        log_format="json",
        traces=False,
        tls_certificate=None,
        tls_private_key=None,
        keys_file=None,
        tls_client_ca=None,
        client_identities=None,
        answer_links=False,
        insecure=False,
    )


def test_the_wire_contract_says_how_large_a_message_may_be() -> None:
    contract = Path(__file__).parents[2] / "protos/topk_bandit/v1/recommender_service.proto"
    said = " ".join(line.removeprefix("//").strip() for line in contract.read_text().splitlines())
    assert f"A message of more than {read().max_message_bytes / 2**20:g} MiB, unless its operators" in said


def test_the_cases_cover_every_setting() -> None:
    assert {*GOOD, *FILES_AND_THEIRS} == set(NAMES) == {name for name, _, _ in BAD}


@pytest.mark.parametrize(("name", "text", "value"), [(name, text, value) for name, (text, value) in GOOD.items()])
def test_a_setting_is_read_from_each_source(tmp_path: Path, name: str, text: str, value: object) -> None:
    config = toml(tmp_path, f"{name} = '{text}'\n")
    assert getattr(read(flag(name), text), name) == value
    assert getattr(read(environ={variable(name): text}), name) == value
    assert getattr(read("--config", str(config)), name) == value
    assert getattr(Settings(**{name: value}), name) == value  # type: ignore[arg-type]


def test_a_flag_beats_a_variable_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    config = toml(tmp_path, "workers = 2\nbeta_scale = 3\nuniform_share = 0.5\n")
    environ = {"TOPK_BANDIT_WORKERS": "3", "TOPK_BANDIT_BETA_SCALE": "4"}
    settings = read("--config", str(config), "--workers", "5", environ=environ)
    assert (settings.workers, settings.beta_scale, settings.uniform_share) == (5, 4.0, 0.5)
    assert settings.default_exploration == Exploration(
        beta=PaperBeta(4.0), uniform_share=0.5, near_share=0.04, shares_fall_after=500
    )
    assert settings.drain_seconds == 10.0


def test_the_file_can_be_named_by_a_variable_and_a_flag_beats_it(tmp_path: Path) -> None:
    config = toml(tmp_path, "workers = 2\n")
    assert read(environ={"TOPK_BANDIT_CONFIG": str(config)}).workers == 2
    assert read("--config", str(config), environ={"TOPK_BANDIT_CONFIG": "/nowhere"}).workers == 2


@pytest.mark.parametrize(("name", "text", "problem"), BAD)
def test_a_bad_value_is_refused_with_its_name_and_origin(tmp_path: Path, name: str, text: str, problem: str) -> None:
    config = toml(tmp_path, f'{name} = "{text}"\n'.replace("\0", "\\u0000"))
    for arguments, environ, origin in (
        ([f"{flag(name)}={text}"], {}, f"flag {flag(name)}"),
        ([], {variable(name): text}, f"variable {variable(name)}"),
        (["--config", str(config)], {}, f"{config}, key {name}"),
    ):
        with pytest.raises(ConfigurationError) as refusal:
            read(*arguments, environ=environ)
        assert str(refusal.value).startswith(f"{name} (from {origin}): ")
        assert problem in str(refusal.value)


@pytest.mark.parametrize(("name", "text", "problem"), BAD)
def test_a_bad_value_is_refused_at_construction(name: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Settings(**{name: text})  # type: ignore[arg-type]
    assert str(refusal.value).startswith(f"{name}: ")
    assert problem in str(refusal.value)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("workers = true", "True is not a whole number"),
        ("workers = 2.0", "2.0 is not a whole number"),
        ("beta_scale = false", "False is not a number"),
        ("beta_scale = [1]", "is not a number"),
        ("listen = 50051", "50051 is not host:port"),
        ("redis_url = 1", "is not text"),
        ("data_dir = 1", "1 is not text"),
        ("log_level = {}", "is none of"),
        ("durability = ['fsync']", "is none of memory"),
        ("durability = {}", "is none of memory"),
    ],
)
def test_a_value_of_another_type_in_the_file_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read("--config", str(toml(tmp_path, line)))


def test_an_unknown_key_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    config = toml(tmp_path, "worker = 2\n")
    with pytest.raises(ConfigurationError, match=rf"{config}: 'worker' is no setting; did you mean workers\?"):
        read("--config", str(config))
    config = toml(tmp_path, "[serve]\nworkers = 2\n")
    with pytest.raises(ConfigurationError, match=rf"{config}: \[serve\]: settings stand at the top, in no table"):
        read("--config", str(config))


def test_an_unknown_variable_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"TOPK_BANDIT_REDISURL is no setting; did you mean TOPK_BANDIT_REDIS_URL\?",
    ):
        read(environ={"TOPK_BANDIT_REDISURL": "redis://h"})
    with pytest.raises(ConfigurationError, match="TOPK_BANDIT_PORT is no setting"):
        read(environ={"TOPK_BANDIT_PORT": "50051"})


def test_the_variables_of_commands_that_ask_a_service_are_no_mistake() -> None:
    asking = {
        "TOPK_BANDIT_ADDRESS": "h:1",
        "TOPK_BANDIT_KEY": "id.secret",
        "TOPK_BANDIT_TLS_ROOTS": "roots.pem",
        "TOPK_BANDIT_CLIENT_CERTIFICATE": "certificate.pem",
        "TOPK_BANDIT_CLIENT_PRIVATE_KEY": "key.pem",
    }
    assert read(environ=asking) == read()
    with pytest.raises(ConfigurationError, match="TOPK_BANDIT_KEYS is no setting"):
        read(environ={**asking, "TOPK_BANDIT_KEYS": "keys.json"})


def test_the_variables_of_a_kubernetes_service_are_no_mistake() -> None:
    links = {
        "TOPK_BANDIT_SERVICE_HOST": "10.0.0.1",
        "TOPK_BANDIT_SERVICE_PORT": "50051",
        "TOPK_BANDIT_SERVICE_PORT_GRPC": "50051",
        "TOPK_BANDIT_PORT": "tcp://10.0.0.1:50051",
        "TOPK_BANDIT_PORT_50051_TCP": "tcp://10.0.0.1:50051",
        "TOPK_BANDIT_PORT_50051_TCP_PROTO": "tcp",
        "TOPK_BANDIT_PORT_50051_TCP_PORT": "50051",
        "TOPK_BANDIT_PORT_50051_TCP_ADDR": "10.0.0.1",
        "TOPK_BANDIT_METRICS_SERVICE_HOST": "10.0.0.2",
    }
    assert read(environ=links) == read()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"workers = ", "is not TOML: Invalid value"),
        (b"a = " + b"[" * 100_000, "is not TOML"),
        (b"\xff", "is not TOML"),
        (None, "can't be read: No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"config file {path} {problem}"):
        read("--config", str(path))


def test_empty_text_turns_off_what_can_be_off() -> None:
    settings = read("--metrics-listen=", "--redis-url=", "--tls-certificate=", "--tls-private-key=")
    assert settings.metrics_listen is None
    assert settings.redis_url == ""
    assert settings.tls_certificate is None


def test_a_switch_is_turned_on_by_its_flag_alone(tmp_path: Path) -> None:
    assert read("--insecure", "--workers=2").insecure
    assert not read("--insecure=false", environ={"TOPK_BANDIT_INSECURE": "true"}).insecure
    assert read("--config", str(toml(tmp_path, "insecure = true\n"))).insecure


def test_a_certificate_needs_its_key_and_a_key_its_certificate(tmp_path: Path) -> None:
    pem = tmp_path / "a.pem"
    pem.touch()
    assert read("--tls-certificate", str(pem), "--tls-private-key", str(pem)).tls_private_key == pem
    with pytest.raises(
        ConfigurationError, match=r"tls_certificate \(from flag --tls-certificate\): tls_private_key is missing"
    ):
        read("--tls-certificate", str(pem))
    with pytest.raises(ConfigurationError, match="tls_private_key: tls_certificate is missing; set both or neither"):
        Settings(tls_private_key=pem)


def test_names_of_callers_need_their_authority_and_that_our_certificate(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.touch()
    ours = {"tls_certificate": file, "tls_private_key": file}
    assert Settings(**ours, tls_client_ca=file, client_identities=file).client_identities == file  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^client_identities \(from flag .*\): needs tls_client_ca$"):
        read("--client-identities", str(file))
    with pytest.raises(ConfigurationError, match=r"^tls_client_ca: needs tls_certificate$"):
        Settings(tls_client_ca=file)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_key_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    pem = tmp_path / "a.pem"
    pem.touch(mode=0)
    with pytest.raises(ConfigurationError, match="can't be read"):
        Settings(tls_private_key=pem)


def test_a_worker_has_room_for_one_bandit_at_least() -> None:
    assert read("--bandit-memory-mib", "64", "--worker-memory-mib", "64").worker_memory_mib == 64
    with pytest.raises(
        ConfigurationError,
        match=r"worker_memory_mib \(from flag --worker-memory-mib\): 32 is less than bandit_memory_mib, 64",
    ):
        read("--bandit-memory-mib", "64", "--worker-memory-mib", "32")


def test_two_servers_do_not_share_an_address() -> None:
    with pytest.raises(ConfigurationError, match=r"metrics_listen .*: 127.0.0.1:9 is where gRPC is served"):
        read("--listen=127.0.0.1:9", "--metrics-listen=127.0.0.1:9")
    with pytest.raises(ConfigurationError, match=r"metrics_listen .*: 127.0.0.1:8 is where HTTP is served"):
        read("--http-listen=127.0.0.1:8", "--metrics-listen=127.0.0.1:8")
    with pytest.raises(ConfigurationError, match=r"console_listen .*: 127.0.0.1:8 is where HTTP is served"):
        read("--http-listen=127.0.0.1:8", "--console-listen=127.0.0.1:8")
    assert read("--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0").listen.port == 0


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_DATA_HOME": "/data", "HOME": "/home/a"}, "/data/topk-bandit"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/home/a"}, "/home/a/.local/share/topk-bandit"),
        ({"HOME": "/home/a"}, "/home/a/.local/share/topk-bandit"),
        ({}, "/var/lib/topk-bandit"),
    ],
)
def test_the_data_folder_follows_the_platform(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], folder: str
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert str(default_data_dir(environ)) == folder


def test_a_data_folder_on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert str(default_data_dir({"HOME": "/Users/a"})) == "/Users/a/Library/Application Support/topk-bandit"


def test_a_tilde_is_the_home_folder() -> None:
    assert str(read("--data-dir=~/data").data_dir) == os.path.expanduser("~/data")  # noqa: PTH111
    with pytest.raises(ConfigurationError, match="names a home folder that is not known"):
        read("--data-dir=~no-such-user-of-this-machine/data")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", ""),
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:hunter2@localhost:6379/0", "redis://***@localhost:6379/0"),
        ("rediss://hunter2@[::1]:6379?ssl_password=hunter2", "rediss://***@[::1]:6379?ssl_password=***"),
        ("unix:///run/redis.sock?password=hunter2&db=1", "unix:///run/redis.sock?password=***&db=***"),
        ("unix://user:hunter2@/run/redis.sock", "unix://***@/run/redis.sock"),
        ("sentinel://:hunter2@one:26379,two/main", "sentinel://***@one:26379,two/main"),
    ],
)
def test_a_secret_is_never_shown(url: str, shown: str) -> None:
    settings = Settings(redis_url=url)
    assert settings.redact()["redis_url"] == shown
    assert set(settings.redact()) == set(NAMES)
    assert "hunter2" not in repr(settings) + str(settings) + str(settings.redact())


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2/x@host",
        "redis://:hunter2#@host",
        "redis://:hunter2@[host",
        "hunter2",
        "redis://:hunter2@host:0",
        "redis://:hunter2@ho st",
        "sentinel://:hunter2@host:26379",
    ],
)
def test_a_malformed_url_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        read(environ={"TOPK_BANDIT_REDIS_URL": url})
    assert str(refusal.value).startswith("redis_url (from variable TOPK_BANDIT_REDIS_URL): is not a URL like")
    chain: BaseException | None = refusal.value
    while chain is not None:
        assert "hunter2" not in str(chain)
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)


@pytest.mark.parametrize(
    ("given", "awaited"),
    [
        ({}, FSYNC),
        ({"fsync": "everysec"}, IN_MEMORY),
        ({"redis_url": "redis://here"}, IN_MEMORY),
        ({"durability": "memory"}, IN_MEMORY),
        ({"redis_url": "redis://here", "durability": "fsync"}, FSYNC),
        ({"redis_url": "redis://here", "durability": "replicated:2"}, Durability(synced=True, replicas=2)),
    ],
)
def test_what_is_awaited_is_by_default_what_the_store_can_keep(given: dict[str, Any], awaited: Durability) -> None:
    assert Settings(**given).awaited == awaited


def test_an_embedded_store_that_syncs_each_second_can_not_keep_fsync() -> None:
    with pytest.raises(ConfigurationError, match="durability: fsync needs fsync always, not everysec"):
        Settings(durability="fsync", fsync="everysec")  # type: ignore[arg-type]


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().workers = 2  # type: ignore[misc]


def test_help_tells_every_flag_with_its_default_and_variable() -> None:
    parser = ArgumentParser()
    add_arguments(parser)
    text = " ".join(parser.format_help().split())
    for name in NAMES:
        assert flag(name) in text
        assert f"environment: {variable(name)})" in text
    assert "(default: 127.0.0.1:50051;" in text
    assert text.count("default: ") == len(NAMES)


def test_choices_are_those_of_the_modules_that_use_them() -> None:
    for name, choices in (("fsync", get_args(FsyncPolicy)), ("log_format", get_args(LogFormat))):
        with pytest.raises(ConfigurationError, match=f"none of {', '.join(choices)}"):
            Settings(**{name: "other"})  # type: ignore[arg-type]


def test_nothing_else_is_public() -> None:
    public = {name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    assert {name for name in public if not name.startswith("_")} | {"CALLER_VARIABLES", "OTHER_TENANTS"} == set(
        module.__all__
    )


@pytest.mark.parametrize("quota", CALL_QUOTAS)
def test_quotas_of_calls_need_keys(tmp_path: Path, quota: Quota) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}')
    name = f"max_{quota}_per_tenant"
    settings = read(f"{flag(name)}=9", f"--keys-file={keys}")
    assert getattr(settings, name) == 9
    assert settings.default_quotas[quota] == 9
    assert getattr(read(f"{flag(name)}="), name) is None


def test_what_is_not_limited_is_no_quota() -> None:
    assert read().default_quotas == {Quota.BANDITS: 1000, Quota.STUDIES: 1000}
    assert read("--max-items-per-tenant=5").default_quotas[Quota.ITEMS] == 5
