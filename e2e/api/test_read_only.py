"""A disk that becomes read-only under a running control plane, and writable again.

The kernel makes a disk read-only after an error, and then it stays so; that is tried where a loop device can be had. The way back
is tried with a layer between the processes and the disk.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from conftest import ROOT, Yard, plain_runtime, stop, wait_for
from test_durability import MAPS, PRINTS, Http, config_map, processes

LAYER = ROOT / "e2e/faults" / "readonly.c"


class Switch:
    """While it is on, nothing below the folder can be changed by a process that has the layer."""

    def __init__(self, folder: pathlib.Path, outside: pathlib.Path):
        library, self.flag = outside / "readonly.so", outside / "read-only"
        subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, LAYER, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "READONLY_BELOW": str(folder), "READONLY_WHILE": str(self.flag)}

    def on(self) -> None:
        self.flag.touch()

    def off(self) -> None:
        self.flag.unlink(missing_ok=True)


def refuses(http: Http) -> None:
    """Writes are refused with their reason, whatever their size, and reads are answered."""
    before = time.monotonic()
    for body in (config_map("a"), config_map("b", text="x" * 500_000)):
        code, text = http.ask("POST", MAPS, body)
        told = json.loads(text)
        assert (code, told["kind"], told["reason"]) == (500, "Status", "InternalError"), text
        assert "the disk is read-only" in told["message"] and "writable" in told["message"], text
        assert told["details"]["causes"][0]["message"] in told["message"]
    assert http.ask("DELETE", f"{MAPS}/before")[0] == 500 and http.ask("GET", f"{MAPS}/before")[0] == 200
    code, text = http.ask("GET", "/readyz")
    assert code == 500 and "[-]etcd failed: the disk is read-only" in text, text
    assert http.ask("GET", "/livez")[0] == 200
    assert "trainyard_store_writable 0" in http.ask("GET", "/metrics")[1]
    assert time.monotonic() - before < 10


@pytest.fixture
def switched(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Yard, Switch]]:
    home = tmp_path / "disk" / "home"
    home.mkdir(parents=True)
    switch = Switch(tmp_path / "disk", tmp_path)
    with monkeypatch.context() as patch:
        for name, value in switch.environment.items():
            patch.setenv(name, value)
        yard = Yard(home)
    yield yard, switch
    switch.off()
    stop(yard)


@pytest.mark.timeout(240)
def test_a_read_only_disk_refuses_writes_and_harms_no_job(switched: tuple[Yard, Switch], tmp_path: pathlib.Path):
    yard, switch = switched
    # a client elsewhere does not need that disk
    yard.env = {name: value for name, value in yard.env.items() if name != "LD_PRELOAD"}
    yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("plain")))
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    yard.run("run", "--detach", "--runtime", "plain", "--name", "ends-meanwhile", str(script), "8", "3")
    yard.run("run", "--detach", "--runtime", "plain", "--name", "goes-on", str(script), "600", "0")
    lines = lambda: yard.run("logs", "goes-on", "--no-prefix", check=False).stdout.count("\n")
    for name in ("ends-meanwhile", "goes-on"):
        yard.run("wait", name, "--for", "running", "--timeout", "60s")
    wait_for("its lines", lines)
    # a container of it is due while nothing can be written
    go = tmp_path / "go"
    first = {"name": "first", "image": "i", "command": ["sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"]}
    pod = {"restartPolicy": "Never", "initContainers": [first], "containers": [{"name": "c", "image": "i", "command": ["sh", "-c", "exit 7"]}]}
    yard.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "steps"}, "spec": pod}))
    state = lambda field: yard.kubectl("get", "pod", "steps", "-o", f"jsonpath={{.status.{field}}}").stdout
    wait_for("its first step", lambda: "running" in state("initContainerStatuses[0].state"))
    http = Http(yard)
    assert http.ask("POST", MAPS, config_map("before"))[0] == 201

    switch.on()
    refuses(http)
    refused = yard.run("run", "--detach", "--runtime", "plain", "--name", "refused", str(script), "1", "0", check=False)
    assert refused.returncode != 0 and "the disk is read-only" in refused.stderr, refused.stderr

    go.touch()
    wait_for("the first job's process to end", lambda: not processes(f"{script}\x008\x00".encode()), 60)
    assert processes(f"{script}\x00600".encode()), "a running job was harmed"

    switch.off()
    wait_for("the server to be ready", lambda: http.ask("GET", "/readyz")[0] == 200, 30)
    assert json.loads(yard.run("status", "-o", "json").stdout)["pid"] == yard.running["pid"], "it was started again"
    yard.run("wait", "ends-meanwhile", "--for", "finished", "--timeout", "60s", check=False)
    assert "exit code 3" in yard.run("describe", "ends-meanwhile").stdout
    known = lines()
    wait_for("lines to be kept again", lambda: lines() > known)
    wait_for("both steps to end", lambda: state("phase") == "Failed", 60)
    assert state("containerStatuses[0].state.terminated.exitCode") == "7"
    assert http.ask("POST", MAPS, config_map("after"))[0] == 201
    assert http.ask("DELETE", f"{MAPS}/before")[0] == 200
    yard.run("delete", "goes-on")
    wait_for("its process to end", lambda: not processes(f"{script}\x00600".encode()), 60)


def mounted(image: pathlib.Path, place: pathlib.Path) -> pathlib.Path | None:
    """Mounts a new ext4 from a file; the folder by which the kernel shows it. `None`: this machine does not lend one."""
    quiet = {"capture_output": True, "text": True}
    with image.open("wb") as file:
        file.truncate(64 << 20)
    place.mkdir()
    words = [["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop,errors=remount-ro", image, place]]
    try:
        if any(subprocess.run(command, **quiet).returncode for command in words):
            return None
    except FileNotFoundError:
        return None
    device = subprocess.run(["findmnt", "-n", "-o", "SOURCE", place], **quiet).stdout.strip()
    shown = pathlib.Path("/sys/fs/ext4") / pathlib.Path(device).name
    if (shown / "trigger_fs_error").exists():
        return shown
    subprocess.run(["umount", place], check=True)
    return None


def lends_disks() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder) / "disk"
        lent = mounted(pathlib.Path(folder) / "image", place)
        if lent:
            subprocess.run(["umount", place], check=True)
    return lent is not None


if os.getuid() == 0 and lends_disks():

    @pytest.mark.timeout(240)
    def test_a_disk_that_the_kernel_makes_read_only_harms_no_job(tmp_path: pathlib.Path):
        disk = tmp_path / "disk"
        shown = mounted(tmp_path / "image", disk)
        assert shown
        yard = Yard.__new__(Yard)
        yard.home, yard.flags, yard.env = disk / "home", (), {**os.environ, "TRAINYARD_HOME": str(disk / "home")}
        script = tmp_path / "prints.py"
        script.write_text(PRINTS)
        try:
            yard.up()
            yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("plain")))
            yard.run("run", "--detach", "--runtime", "plain", "--name", "goes-on", str(script), "600", "0")
            lines = lambda: yard.run("logs", "goes-on", "--no-prefix", check=False).stdout.count("\n")
            wait_for("its lines", lines)
            http = Http(yard)
            assert http.ask("POST", MAPS, config_map("before"))[0] == 201
            (shown / "trigger_fs_error").write_text("1")
            refuses(http)
            assert processes(f"{script}\x00600".encode()), "a running job was harmed"
            # nothing can be noted any more: to start again is refused with the reason, and to stop goes
            assert lines()
            yard.run("down")
            again = yard.run("up", "--detach", check=False)
            assert again.returncode != 0 and "Read-only file system" in again.stderr, again.stderr
            assert processes(f"{script}\x00600".encode()), "a running job was harmed"
        finally:
            stop(yard)
            umount = lambda: subprocess.run(["umount", disk], capture_output=True).returncode == 0
            wait_for("the disk to be unused", umount)
