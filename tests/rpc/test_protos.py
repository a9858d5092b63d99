"""The folder of protos that compiles alone, and what gRPC may try again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc
from tests.rpc.harness import serving
from tests.rpc.wire import HOME
from tests.waiting import PATIENCE
from tools.proto_folder import main

from topk_bandit.rpc.services import DESCRIPTORS
from topk_bandit.v1 import bandit_service_pb2 as pb
from topk_bandit.v1.bandit_service_pb2_grpc import BanditServiceStub

if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOS = Path(__file__).resolve().parents[2] / "protos"
WELL_KNOWN = Path(protoc.__file__).parent / "_proto"
UNSAFE = {
    "CreateLink",
    "BatchRecommend",
    "RecommendPage",
    "UpdateBandit",
    "DeleteBandit",
    "DeleteStudy",
    "DeleteOperation",
}
CONFIG = (PROTOS / "service_config.json").read_text(encoding="utf-8")


def test_the_folder_compiles_with_protoc_and_nothing_else(tmp_path: Path) -> None:
    folder, target = tmp_path / "protos", tmp_path / "all.binpb"
    assert main([str(folder)]) == 0
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.proto")}
    flags = [f"-I{folder}", f"-I{WELL_KNOWN}", "--include_imports", f"-o{target}"]
    assert protoc.main(["protoc", *flags, *sorted(files)]) == 0
    names = {file.name for file in FileDescriptorSet.FromString(target.read_bytes()).file}
    assert {str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto")} <= files <= names
    assert all(name.startswith("google/protobuf/") for name in names - files)


def retried() -> Sequence[tuple[str, str]]:
    (config,) = json.loads(CONFIG)["methodConfig"]
    return [(one["service"], one["method"]) for one in config["name"]]


def test_what_grpc_may_try_again_is_safe_to_send_again() -> None:
    safe = {
        (service.full_name, method.name)
        for service in DESCRIPTORS
        for method in service.methods
        if method.name not in UNSAFE and "request_id" not in method.input_type.fields_by_name
    }
    assert set(retried()) == safe
    assert len(retried()) == len(safe)


def test_grpc_tries_again_as_the_config_says() -> None:
    options = [("grpc.service_config", CONFIG), ("grpc.use_local_subchannel_pool", 1)]
    with serving() as running, grpc.insecure_channel(running.target, options=options) as channel:
        stub = BanditServiceStub(channel)
        running.services.guard.in_flight.close()
        for call, request, tries in (
            (stub.GetBandit, pb.GetBanditRequest(name=HOME), 4),
            (stub.DeleteBandit, pb.DeleteBanditRequest(name=HOME), 1),
        ):
            running.ledger.handled.clear()
            with pytest.raises(grpc.RpcError) as raised:
                call(request, timeout=PATIENCE)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
            running.ledger.wait_handled(tries)
            assert running.ledger.codes == ["UNAVAILABLE"] * tries
