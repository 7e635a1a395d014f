"""Who is let in by a certificate, and what is written down about it."""

from __future__ import annotations

import json
import pathlib
import stat
import subprocess
from collections.abc import Iterator

import pytest
from conftest import Yard, stop, wait_for
from test_api import CONFIGMAPS, Raw


def openssl(folder: pathlib.Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)


def signed(folder: pathlib.Path, authority: str, name: str, subject: str) -> None:
    """NAME.crt and NAME.key, signed by an authority that is made if there is none."""
    if not (folder / f"{authority}.crt").exists():
        openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{authority}.key", "-out", f"{authority}.crt",
                "-subj", f"/CN={authority}", "-days", "1")  # fmt: skip
    openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
    (folder / "ext").write_text("extendedKeyUsage=clientAuth\n")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key",
            "-CAcreateserial", "-out", f"{name}.crt", "-days", "1", "-extfile", "ext")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("access")
    signed(folder, "company", "carol", "/O=ops/O=system:masters/CN=carol")
    signed(folder, "stranger", "mallory", "/O=system:masters/CN=mallory")
    return folder


@pytest.fixture(scope="module")
def yard(folder: pathlib.Path) -> Iterator[Yard]:
    yard = Yard(folder / "home", "--no-node", f"--audit-log={folder}/audit.log", f"--client-ca-file={folder}/company.crt")
    yield yard
    stop(yard)


def whoami(yard: Yard, *flags: str) -> subprocess.CompletedProcess:
    """Of a client whose only credential is its certificate."""
    config = yard.home / "nobody"
    if not config.exists():
        config.write_text(pathlib.Path(yard.kubeconfig).read_text().replace("token: ", "username: "))
    words = ["kubectl", "--kubeconfig", str(config), *flags, "auth", "whoami", "-o", "json"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def test_the_control_plane_signs_for_users_of_its_own(yard: Yard, folder: pathlib.Path) -> None:
    config = folder / "alice"
    config.write_text(yard.run("kubeconfig", "--user", "alice", "--group", "dev", "--days", "7").stdout)
    ask = lambda *words: subprocess.run(
        ["kubectl", "--kubeconfig", str(config), *words], capture_output=True, text=True, timeout=60
    )
    told = json.loads(ask("auth", "whoami", "-o", "json").stdout)["status"]["userInfo"]
    assert (told["username"], told["groups"]) == ("alice", ["dev", "system:authenticated"])
    refused = ask("get", "configmaps")
    assert refused.returncode == 1 and 'User "alice" cannot list resource "configmaps"' in refused.stderr
    yard.kubectl("create", "rolebinding", "dev", "--clusterrole=view", "--group=dev")
    wait_for("the right", lambda: ask("get", "configmaps").returncode == 0)
    assert ask("get", "secrets").returncode == 1
    assert yard.run("kubeconfig").stdout.strip() == yard.kubeconfig
    wrong = yard.run("kubeconfig", "--group", "dev", check=False)
    assert wrong.returncode == 2


def test_certificates_of_an_authority_that_is_named_are_taken(yard: Yard, folder: pathlib.Path) -> None:
    flags = lambda name: [f"--client-certificate={folder}/{name}.crt", f"--client-key={folder}/{name}.key"]
    told = json.loads(whoami(yard, *flags("carol")).stdout)["status"]["userInfo"]
    assert told["username"] == "carol"
    assert set(told["groups"]) == {"ops", "system:masters", "system:authenticated"}
    assert whoami(yard, *flags("mallory")).returncode != 0
    assert whoami(yard).returncode != 0


def test_what_was_asked_is_written_down(yard: Yard, folder: pathlib.Path) -> None:
    raw = Raw(yard)
    body = {"metadata": {"generateName": "told-"}, "data": {"password": "hunter2"}}
    status, made = raw.call(CONFIGMAPS, "POST", body)
    assert status == 201, made
    assert whoami(yard, f"--client-certificate={folder}/carol.crt", f"--client-key={folder}/carol.key").returncode == 0
    log = folder / "audit.log"
    # a line is whole when its end is there: the log is written to meanwhile
    lines = lambda: [json.loads(line) for line in log.read_text().rpartition("\n")[0].splitlines()]
    told = lambda: [(r["user"].get("username"), r["verb"], r.get("objectRef", {}).get("name")) for r in lines()]
    wait_for("what the admin did", lambda: ("kubernetes-admin", "create", made["metadata"]["name"]) in told())
    wait_for("what carol asked", lambda: "carol" in {user for user, *_ in told()})
    token = raw.headers["Authorization"].split()[1]
    assert "hunter2" not in log.read_text() and token not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    for flag, path in (("--audit-log", "/nowhere/audit"), ("--client-ca-file", "/nowhere/ca")):
        wrong = Yard.run(yard, "--home", str(folder / "other"), "up", "--no-node", f"{flag}={path}", check=False)
        assert wrong.returncode == 1 and path in wrong.stderr, wrong.stderr
