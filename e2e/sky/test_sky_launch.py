"""Launches whose client or control plane is killed, or whose cluster is taken down, at any moment."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BINARY

WAIT = 120
# moments of a launch, evenly apart; more of them: MOMENTS=100 pytest e2e/sky/test_sky_launch.py
MOMENTS = int(os.environ.get("MOMENTS") or ("4" if os.environ.get("TRAINYARD_GATE") else "10"))
TASK = """
resources: {infra: local}
workdir: code
envs: {A: value}
secrets: {B: hidden}
setup: echo set up; cat part.bin | wc -c
run: cat a.txt; echo "A=$A B=$B"
"""


class Sky:
    def __init__(self, root: Path):
        self.home = root / "home"
        self.work = root / "work"
        (self.work / "code").mkdir(parents=True)
        (self.work / "code/a.txt").write_text("sent\n")
        (self.work / "code/part.bin").write_bytes(os.urandom(5 << 20))
        (self.work / "task.yaml").write_text(TASK)
        self.env = dict(os.environ, TRAINYARD_HOME=str(self.home), HOME=str(root), USER="me")
        self.env.pop("KUBECONFIG", None)

    def run(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run([BINARY, *words], env=self.env, cwd=self.work, capture_output=True, text=True, timeout=WAIT)
        assert code is None or done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def start(self, name: str, *words: str) -> subprocess.Popen:
        words = ("sky", "launch", "-y", "-c", name, *words, "task.yaml")
        return subprocess.Popen(
            [BINARY, *words], env=self.env, cwd=self.work, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )

    def objects(self, kinds: str, name: str) -> list[dict]:
        words = ["kubectl", "--kubeconfig", str(self.home / "kubeconfig"), "get", kinds, "-o", "json"]
        done = subprocess.run([*words, "-l", f"sky.trainyard.dev/cluster={name}"], capture_output=True, timeout=WAIT, check=True)
        return json.loads(done.stdout)["items"]

    def cluster(self, name: str) -> list[dict]:
        done = subprocess.run([BINARY, "sky", "status", name, "-o", "json"], env=self.env, capture_output=True, timeout=WAIT)
        return json.loads(done.stdout)

    def jobs(self, name: str) -> list[dict]:
        done = subprocess.run([BINARY, "sky", "queue", name, "-o", "json"], env=self.env, capture_output=True, timeout=WAIT)
        return json.loads(done.stdout)[name]

    def until(self, what, asked):
        end = time.monotonic() + WAIT
        while not (answer := asked()):
            assert time.monotonic() < end, what() if callable(what) else what
            time.sleep(0.1)
        return answer

    def kill_control_plane(self) -> None:
        os.kill(json.loads((self.home / "up.json").read_text())["pid"], signal.SIGKILL)

    def comes_to_one_job(self, name: str) -> bool:
        """Whether the launch was there when its client was killed; then it comes to its job, or else to nothing."""
        launches = self.objects("launches.sky.trainyard.dev", name)
        if not launches:
            assert self.cluster(name) == []
            return False
        states = lambda: [one.get("status", {}) for one in self.objects("launches.sky.trainyard.dev", name)]
        self.until(states, lambda: all(one.get("phase") == "Succeeded" for one in states()))
        self.until(lambda: self.jobs(name), lambda: all(one["status"] == "SUCCEEDED" for one in self.jobs(name)))
        assert [one["job_id"] for one in self.jobs(name)] == [1]
        assert "A=value B=hidden" in self.run("sky", "logs", name)
        return True


@pytest.fixture(scope="module")
def sky(tmp_path_factory):
    sky = Sky(tmp_path_factory.mktemp("l"))
    sky.run("up", "-d")
    yield sky
    sky.run("sky", "down", "-y", "-a", code=None)
    sky.run("down", code=None)


@pytest.fixture(scope="module")
def moments(sky):
    """When to kill, in seconds from the start of a launch."""
    started = time.monotonic()
    launch = sky.start("whole", "-d")
    assert launch.wait(WAIT) == 0, launch.stdout.read()
    sky.run("sky", "down", "-y", "whole")
    whole = time.monotonic() - started
    return [whole * number / MOMENTS for number in range(1, MOMENTS + 1)]


def test_a_launch_goes_on_without_its_client(sky, moments):
    found = []
    for number, moment in enumerate(moments):
        launch = sky.start(f"client-{number}", "-i", "60")
        time.sleep(moment)
        os.killpg(launch.pid, signal.SIGKILL)
        launch.wait()
    for number in range(len(moments)):
        found.append(sky.comes_to_one_job(f"client-{number}"))
    assert any(found), "every client was killed too early"
    [cluster] = sky.cluster(f"client-{found.index(True)}")
    assert cluster["autostop"] == 60
    sky.run("sky", "down", "-y", "-a")


def test_a_launch_goes_on_after_its_control_plane_was_killed(sky, moments):
    found = []
    for number, moment in enumerate(moments):
        name = f"plane-{number}"
        launch = sky.start(name)
        time.sleep(moment)
        sky.kill_control_plane()
        os.killpg(launch.pid, signal.SIGKILL)
        launch.wait()
        sky.run("up", "-d")
        found.append(sky.comes_to_one_job(name))
        sky.run("sky", "down", "-y", name, code=None)
    assert any(found), "every control plane was killed too early"


def test_a_start_goes_on_without_its_client(sky):
    launch = sky.start("stopped", "-d")
    assert launch.wait(WAIT) == 0, launch.stdout.read()
    sky.run("sky", "stop", "-y", "stopped")
    before = len(sky.objects("launches.sky.trainyard.dev", "stopped"))
    start = subprocess.Popen([BINARY, "sky", "start", "-y", "-i", "60", "stopped"], env=sky.env, start_new_session=True)
    sky.until("no launch", lambda: len(sky.objects("launches.sky.trainyard.dev", "stopped")) > before)
    os.killpg(start.pid, signal.SIGKILL)
    start.wait(WAIT)
    up = lambda: sky.cluster("stopped")[0]
    sky.until(up, lambda: up()["status"] == "UP" and up()["autostop"] == 60)
    states = lambda: [one["status"]["phase"] for one in sky.objects("launches.sky.trainyard.dev", "stopped")]
    sky.until(states, lambda: set(states()) == {"Succeeded"})
    assert len(sky.jobs("stopped")) == 1, "a start submits no job"
    sky.run("sky", "down", "-y", "stopped")


def test_down_at_any_moment_ends_all_of_it(sky, moments):
    ended = 0
    for number, moment in enumerate(moments):
        name = f"down-{number}"
        launch = sky.start(name)
        time.sleep(moment)
        told = sky.run("sky", "down", "-y", name)
        out, _ = launch.communicate(timeout=WAIT)
        if "not found" in told:
            assert launch.returncode == 0 and sky.jobs(name), out
            sky.run("sky", "down", "-y", name)
            continue
        ended += 1
        assert sky.cluster(name) == [], f"{told}\n{out}"
        assert not [one for one in sky.objects("launches.sky.trainyard.dev", name) if one.get("status", {}).get("phase") not in ("Failed", "Succeeded")]
        if launch.returncode != 0:
            assert "was terminated while it was being launched" in out or "has gone with cluster" in out or "does not exist" in out, out
    assert ended
    assert sky.objects("machines.sky.trainyard.dev,clusters.sky.trainyard.dev", "down-0") == []


def test_nothing_of_a_client_that_was_killed_too_early_is_left(sky):
    """A `git` that never answers holds the client before its launch is there."""
    tools = sky.work.parent / "hangs"
    tools.mkdir()
    (tools / "git").write_text(f"#!/bin/sh\ntouch {sky.work}/asked; exec sleep 1000\n")
    (tools / "git").chmod(0o755)
    (sky.work / "hangs.yaml").write_text("resources: {infra: local}\nworkdir: {url: https://example.com/x}\nrun: echo never\n")
    env = {**sky.env, "PATH": f"{tools}:{sky.env['PATH']}"}
    words = [BINARY, "sky", "launch", "-y", "-c", "left", "hangs.yaml"]
    launch = subprocess.Popen(words, env=env, cwd=sky.work, start_new_session=True, stdout=subprocess.DEVNULL)
    sky.until("it fetches files", (sky.work / "asked").exists)
    os.killpg(launch.pid, signal.SIGKILL)
    launch.wait()
    assert sky.cluster("left") == [] and sky.objects("launches.sky.trainyard.dev", "left") == []


def test_files_are_sent_once(sky):
    kept = lambda: sorted(path.name for path in (sky.home / "files/default").rglob("*") if path.is_file())
    sky.run("sky", "launch", "-y", "-c", "once", "task.yaml")
    before = kept()
    sky.run("sky", "launch", "-y", "-c", "once", "task.yaml")
    assert kept() == before
    (sky.work / "code/a.txt").write_text("changed\n")
    assert "changed" in sky.run("sky", "launch", "-y", "-c", "once", "task.yaml")
    # the file, and the list of files
    assert len(set(kept()) - set(before)) == 2
    sky.run("sky", "down", "-y", "once")


def test_a_file_that_changes_or_is_none_costs_a_line(sky):
    code = sky.work / "code"
    os.mkfifo(code / "pipe")
    out = sky.run("sky", "launch", "-y", "-c", "line", "task.yaml")
    assert "/pipe is a pipe: left out" in out
    (code / "pipe").unlink()
    sky.run("sky", "down", "-y", "line")
