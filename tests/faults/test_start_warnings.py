"""What an operator should know at the start and what stops no service: each is said once, as a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.service import serving
from tests.rpc.certificates import Authority
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # it runs a whole service


def test_a_cold_log_without_a_folder_and_a_certificate_of_last_year_are_said(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path / "authority").issue("expired", "IP:127.0.0.1", days=-1)
    tls = f"--tls-certificate={certificate}", f"--tls-private-key={key}"
    nowhere = tmp_path / "cold"
    with serving(tmp_path / "data", f"--cold-log-dir={nowhere}", *tls) as service:
        until(lambda: "cold_log_dir: " in service.log, what="the folder was looked at, beside the start")
    warned = [one["message"] for one in service.records if one.get("level") == "WARNING"]
    [said] = [one for one in warned if one.startswith("cold_log_dir: ")]
    assert said.startswith(f"cold_log_dir: {nowhere} can't be written: No such file or directory; events wait in the ")
    assert f"tls_certificate: callers refuse {certificate}: certificate has expired" in warned
