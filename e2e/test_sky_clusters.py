"""`sky` and its clusters on this machine: launch, exec, queue, logs, cancel, stop, start, autostop, down, with the built binary."""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from conftest import BINARY, ROOT

WAIT = 120


class Sky:
    def __init__(self, root: Path):
        self.root = root
        self.home = root / "home"
        self.work = root / "work"
        self.work.mkdir()
        tools = root / "tools"
        tools.mkdir()
        # one GPU, which nothing of the tests computes on
        (tools / "nvidia-smi").write_text('#!/bin/sh\ncase "$1" in *index,*) echo "0, NVIDIA T4, 15360";; *) echo "NVIDIA T4";; esac\n')
        (tools / "nvidia-smi").chmod(0o755)
        path = f"{tools}:{os.environ['PATH']}"
        self.env = dict(os.environ, TRAINYARD_HOME=str(self.home), HOME=str(root), USER="me", PATH=path)
        self.env.pop("KUBECONFIG", None)

    def __call__(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [BINARY, "sky", *words], env=self.env, cwd=self.work, capture_output=True, text=True, timeout=WAIT
        )
        assert code is None or done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def json(self, *words: str):
        done = subprocess.run(
            [BINARY, "sky", *words, "-o", "json"], env=self.env, cwd=self.work, capture_output=True, timeout=WAIT
        )
        return json.loads(done.stdout)

    def clusters(self, *names: str) -> list[dict]:
        return self.json("status", *names)

    def until(self, what: str, asked) -> None:
        end = time.monotonic() + WAIT
        while not asked():
            assert time.monotonic() < end, what
            time.sleep(0.1)

    def machines(self) -> list[str]:
        folder = self.home / "machines"
        return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.fixture(scope="module")
def sky(tmp_path_factory):
    sky = Sky(tmp_path_factory.mktemp("s"))
    yield sky
    sky("down", "-y", "-a", code=None)
    subprocess.run([BINARY, "down"], env=sky.env, capture_output=True, timeout=WAIT)


def test_a_cluster_from_launch_to_down(sky):
    sky("down", "-y", "-a")
    (sky.work / "code").mkdir(exist_ok=True)
    (sky.work / "code/a.txt").write_text("first\n")
    (sky.work / "code/.gitignore").write_text("*.log\n")
    (sky.work / "code/b.log").write_text("no\n")
    (sky.work / "task.yaml").write_text(
        """
name: demo
num_nodes: 2
resources: {infra: local}
workdir: code
envs: {A: it's "q" $HOME}
secrets: {B: hidden}
setup: echo setup $SKYPILOT_SETUP_NODE_RANK; touch ~/was_set_up
run: |
  cat a.txt; ls ~/was_set_up b.log
  echo "A=$A B=$B rank=$SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES job=$SKYPILOT_INTERNAL_JOB_ID pid=$$"
  echo "ips=$(echo "$SKYPILOT_NODE_IPS" | wc -l) $(basename "$PWD") $SKYPILOT_TASK_ID"
"""
    )
    out = sky("launch", "-y", "-c", "dev", "task.yaml")
    assert "setup pid=" in out and "(head, rank=0, pid=" in out and "(worker1, rank=1, pid=" in out
    for line in ['A=it\'s "q" $HOME B=hidden rank=0 of 2 job=1', "rank=1 of 2", "ips=2 sky_workdir sky-", "_dev_1"]:
        assert line in out, out
    assert "cannot access 'b.log'" in out and "Job finished (status: SUCCEEDED)" in out
    assert [(one["name"], one["status"], one["num_nodes"]) for one in sky.clusters()] == [("dev", "UP", 2)]
    assert len(sky.machines()) == 2

    (sky.work / "code/a.txt").write_text("second\n")
    out = sky("exec", "dev", "--workdir", "code", "cat a.txt; exit 7", code=100)
    assert "second" in out
    assert "Job 2: FAILED" in sky("logs", "dev", "2", "--status", code=100)
    assert "second" in sky("logs", "dev", code=100)
    sky("logs", "dev", "9", code=102)
    told = sky("logs", "dev", "1", "2", "--sync-down")
    folders = [Path(line.split(": ", 1)[1]) for line in told.splitlines() if line.startswith("Job ")]
    assert [sorted(path.name for path in folder.iterdir()) for folder in folders] == [
        ["0-head.log", "1-worker1.log", "setup-head.log", "setup-worker1.log"], ["run.log"]
    ]
    assert "second" in (folders[1] / "run.log").read_text()

    sky("exec", "-d", "dev", "echo begun; exec sleep 600")
    sky.until("it runs", lambda: "begun" in sky("logs", "dev", "3", "--no-follow", code=101))
    assert "Cancelled jobs with IDs: 3" in sky("cancel", "-y", "dev")
    assert "begun" in sky("logs", "dev", "3", code=103), "its output outlives its pod"
    queue = sky.json("queue", "dev")["dev"]
    assert [(job["job_id"], job["status"]) for job in queue] == [(3, "CANCELLED"), (2, "FAILED"), (1, "SUCCEEDED")]

    sky("exec", "-d", "dev", "sleep 600")
    sky("stop", "-y", "dev")
    assert sky.clusters("dev")[0]["status"] == "STOPPED"
    assert "Job 4: FAILED_DRIVER" in sky("logs", "dev", "4", "--status", code=100)
    assert "ClusterNotUpError" in sky("exec", "dev", "true", code=1)
    sky("start", "-y", "dev")
    assert "was_set_up" in sky("exec", "dev", "ls ~")

    sky("down", "-y", "dev")
    assert sky.machines() == [] and sky.clusters() == []
    assert "TERMINATED" in sky("cost-report")


def test_jobs_wait_for_their_turn_and_the_control_plane_may_die(sky):
    sky("launch", "-y", "-d", "-c", "q", "--infra", "local", "until [ -e ~/go ]; do sleep 0.1; done; echo went")
    machine = sky.home / "machines" / sky.machines()[0]
    pid = json.loads((sky.home / "up.json").read_text())["pid"]
    os.kill(pid, 9)
    sky.until("another control plane is started", lambda: "\nq " in sky("status", code=None))
    sky.until("it is up again", lambda: sky.clusters("q")[0]["status"] == "UP")
    (machine / "home/go").touch()
    assert "went" in sky("logs", "q", "1")
    sky("autostop", "-y", "q", "-i", "0", "--down")
    sky.until("it ends by itself", lambda: sky.machines() == [] and sky.clusters() == [])


def test_two_launches_of_one_name_and_down_in_between(sky):
    words = ["launch", "-y", "-c", "twice", "--infra", "local", "echo ran"]
    outs: list[str] = []
    threads = [threading.Thread(target=lambda: outs.append(sky(*words))) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(outs) == 2 and all("ran" in out for out in outs)
    assert len(sky.machines()) == 1
    assert sorted(job["job_id"] for job in sky.json("queue", "twice")["twice"]) == [1, 2]
    sky("down", "-y", "twice")

    launch = threading.Thread(target=lambda: outs.append(sky(*words, code=None)))
    launch.start()
    sky.until("it is being launched", lambda: sky.clusters() != [])
    sky("down", "-y", "twice")
    launch.join()
    sky("down", "-y", "twice")
    assert sky.machines() == [] and sky.clusters() == []


def test_the_next_place_is_taken_where_the_first_has_no_room(sky):
    out = sky("launch", "-y", "-c", "first", "--gpus", "T4")
    assert next(line for line in out.splitlines() if "✔" in line).split()[0] == "Local", out
    (sky.work / "two.yaml").write_text(
        "resources: {ordered: [{infra: local, accelerators: T4}, {infra: local, cpus: 1+}]}\nrun: echo here\n"
    )
    out = sky("launch", "-y", "-c", "second", "two.yaml")
    assert ") here" in out
    [second] = sky.clusters("second")
    assert second["status"] == "UP"
    out = sky("launch", "-y", "-c", "third", "--gpus", "T4", "true", code=1)
    assert "Failed to provision all possible launchable resources" in out and "0 of 1 T4 free" in out
    assert [one["name"] for one in sky.clusters()] == ["first", "second"]
    sky("down", "-y", "first", "second")


def test_a_repository_is_a_working_directory(sky):
    repository = sky.work / "repository"
    repository.mkdir()
    git = ["git", "-C", repository, "-c", "user.name=me", "-c", "user.email=me@example.com"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    for branch, text in (("main", "one"), ("other", "two")):
        subprocess.run([*git, "checkout", "-q", "-B", branch], check=True)
        (repository / "a.txt").write_text(text)
        subprocess.run([*git, "add", "a.txt"], check=True)
        subprocess.run([*git, "commit", "-q", "-m", text], check=True)
    (sky.work / "git.yaml").write_text(f"resources: {{infra: local}}\nworkdir: {{url: {repository}, ref: main}}\nrun: cat a.txt\n")
    assert ") one" in sky("launch", "-y", "-c", "git", "git.yaml")
    assert ") two" in sky("exec", "git", "--git-ref", "other", "git.yaml")
    out = sky("exec", "git", "--git-url", str(repository), "--git-ref", "nope", "true", code=1)
    assert f"cannot fetch {repository} at nope: fatal:" in out
    sky("down", "-y", "git")


def test_files_reach_machines_that_are_somewhere_else(sky, monkeypatch):
    monkeypatch.setitem(sky.env, "TRAINYARD_SKY_BY_PODS", "1")
    code = sky.work / "many"
    for at in range(500):
        folder = code / f"d{at % 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{at}").write_text(str(at))
    (code / ".skyignore").write_text("*.tmp\n")
    (code / "left.tmp").write_text("no\n")
    (code / "link").symlink_to("d7/f7")
    (sky.work / "one.txt").write_text("alone\n")
    (sky.work / "many.yaml").write_text(
        """
num_nodes: 2
resources: {infra: local}
workdir: many
file_mounts: {~/in/two.txt: one.txt}
run: echo "$(find . -type f | wc -l) $(cat link ~/in/two.txt | tr '\\n' ' ')$(cat d1/f1) $(ls left.tmp 2>&1)"
"""
    )
    out = sky("launch", "-y", "-c", "far", "many.yaml")
    assert out.count(") 501 7alone 1 ls: cannot access 'left.tmp'") == 2, out
    (code / "d1/f1").write_text("changed")
    out = sky("exec", "far", "many.yaml")
    assert out.count(") 501 7alone changed ls: ") == 2, out
    sky("exec", "far", "mkdir -p ~/in; rm ~/in/two.txt; mkdir -p ~/in/two.txt/x")
    out = sky("exec", "far", "many.yaml", code=1)
    assert "cannot copy the task's files to far-" in out and "two.txt" in out
    sky("down", "-y", "far")


def test_what_cannot_be(sky):
    assert "Cluster 'nope' does not exist." in sky("exec", "nope", "true", code=1)
    assert "Cluster 'nope' does not exist." in sky("logs", "nope", code=1)
    assert "Cluster 'nope' does not exist." in sky("cancel", "-y", "nope", "1", code=2)
    assert "Cluster(s) not found: nope." in sky("down", "-y", "nope")
    assert "is invalid" in sky("launch", "-y", "-c", "bad name!", "--infra", "local", "true", code=1)
    assert "requires aws which is not enabled" in sky("launch", "-y", "-c", "x", "--infra", "aws", "true", code=1)
    assert "'pool' is not set up" in sky("launch", "-y", "-c", "x", "--infra", "ssh/pool", "true", code=1)
    catalogue = ["--catalog", str(ROOT / "crates/sky/golden/catalog/v8")]
    assert "No machines are made on AWS yet" in sky("launch", "-y", "-c", "x", "--infra", "aws", *catalogue, "true", code=1)
    assert "--resize` does nothing yet" in sky("launch", "-y", "-c", "x", "--infra", "local", "--resize", "true", code=1)
    assert "--git-ref needs --git-url" in sky("launch", "-y", "-c", "x", "--infra", "local", "--git-ref", "main", "true", code=1)
    assert "Cannot use --workdir together" in sky("launch", "-y", "--workdir", ".", "--git-url", "x", "true", code=1)
    out = sky("launch", "-y", "-c", "big", "--infra", "local", "--gpus", "H100:64", "true", code=1)
    assert "ResourcesUnavailableError" in out and "H100" in out
    assert sky.clusters() == [] and sky.machines() == []
