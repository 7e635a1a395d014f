"""kill -9 of the control plane at any moment: the job goes on, nothing is lost, nothing starts twice."""

import json
import pathlib
import random
import re
import threading

import pytest

from conftest import Yard, wait_for

COUNT = """
import sys, time, os
print("start", os.getpid(), flush=True)
for n in range(int(sys.argv[1])):
    print("line", n, flush=True)
    time.sleep(0.02)
print("end", flush=True)
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("exit_code", [0, 5])
def test_a_job_survives_kills(yard: Yard, plain: str, tmp_path: pathlib.Path, exit_code: int):
    script = tmp_path / "count.py"
    script.write_text(COUNT)
    name = f"survivor-{exit_code}"
    yard.run("run", "--detach", "--runtime", plain, "--nodes", "2", "--name", name, str(script), "250", str(exit_code))
    yard.run("wait", name, "--for", "running", "--timeout", "30s")
    for _ in range(3):
        yard.kill()
        yard.up()
    yard.run("wait", name, "--for", "finished", "--timeout", "60s", check=False)
    last = yard.job(name)["status"]["conditions"][-1]["type"]
    assert last == ("Complete" if exit_code == 0 else "Failed")
    for rank in ("0", "1") if exit_code == 0 else ("0",):
        lines = yard.run("logs", name, "--rank", rank, "--no-prefix").stdout.splitlines()
        assert len([line for line in lines if line.startswith("start")]) == 1, "started twice"
        assert [line for line in lines if line.startswith("line")] == [f"line {n}" for n in range(250)]
        assert lines[-1] == "end"
    if exit_code:
        assert f"exit code {exit_code}" in yard.run("describe", name).stdout


@pytest.mark.timeout(120)
def test_a_job_that_ends_while_nobody_looks(yard: Yard, plain: str, tmp_path: pathlib.Path):
    script = tmp_path / "count.py"
    script.write_text(COUNT)
    yard.run("run", "--detach", "--runtime", plain, "--name", "unseen", str(script), "50", "0")
    yard.run("wait", "unseen", "--for", "running", "--timeout", "30s")
    yard.kill()
    wait_for("its processes to end", lambda: not any("unseen" in cmd for cmd in commands(script)), 30)
    yard.up()
    yard.run("wait", "unseen", "--timeout", "30s")
    assert yard.run("logs", "unseen", "--no-prefix").stdout.splitlines()[-1] == "end"


def commands(script: pathlib.Path) -> list[str]:
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(script) in text:
                found.append("unseen " + text)
    return found


@pytest.mark.timeout(180)
def test_no_acknowledged_write_is_lost(yard: Yard):
    """Writers note what was acknowledged; after each kill all of it must be there, revisions growing."""
    acknowledged: list[tuple[str, int]] = []
    stop = threading.Event()

    def write(worker: int):
        n = 0
        while not stop.is_set():
            n += 1
            name = f"kept-{worker}-{n}"
            done = yard.kubectl("create", "configmap", name, f"--from-literal=n={n}", "-o", "json", check=False)
            if done.returncode == 0:
                acknowledged.append((name, int(json.loads(done.stdout)["metadata"]["resourceVersion"])))

    workers = [threading.Thread(target=write, args=(w,)) for w in range(3)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(3):
            seen = len(acknowledged)
            wait_for("writes to go through", lambda: len(acknowledged) > seen + random.randint(3, 9), 30)
            yard.kill()
            yard.up()
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    held = json.loads(yard.kubectl("get", "configmaps", "-o", "json").stdout)
    there = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in held["items"]}
    lost = [name for name, revision in acknowledged if there.get(name) != revision]
    assert len(acknowledged) > 9 and not lost, lost
    raw = json.loads(yard.kubectl("get", "--raw", "/api/v1/namespaces/default/configmaps").stdout)
    assert int(raw["metadata"]["resourceVersion"]) >= max(there.values())


def test_down_and_up_keep_the_address(yard: Yard):
    server = yard.running["server"]
    yard.run("down")
    assert re.match(r"https://127\.0\.0\.1:\d+", server)
    assert yard.up()["server"] == server
