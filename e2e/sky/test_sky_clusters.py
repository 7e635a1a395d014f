"""`sky` and its clusters on this machine: launch, exec, queue, logs, cancel, stop, start, autostop, down, with the built binary."""

import json
import os
import shutil
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
        return self.trainyard("sky", *words, code=code)

    def trainyard(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [BINARY, *words], env=self.env, cwd=self.work, capture_output=True, text=True, timeout=WAIT
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
    told = "skipped for cluster 'dev' (status: STOPPED). It is only allowed for UP and AUTOSTOPPING clusters."
    for words, operation in (
        (["logs", "dev"], "Tailing logs"), (["logs", "dev", "4", "--status"], "Getting job status"),
        (["logs", "dev", "-s"], "Downloading logs"), (["cancel", "-y", "dev"], "Cancelling jobs"),
        (["exec", "dev", "true"], "Executing tasks"),
    ):  # fmt: skip
        assert f"sky.exceptions.ClusterNotUpError: {operation}: {told}" in sky(*words, code=1)
    assert f"Failed to get the job queue for cluster 'dev'.\n  sky.exceptions.ClusterNotUpError: Getting the job queue: {told}" in sky("queue", "dev")
    assert sky.json("queue", "dev") == {}
    sky("start", "-y", "dev")
    assert "Job 4: FAILED_DRIVER" in sky("logs", "dev", "4", "--status", code=100)
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


def test_a_gpu_is_a_clusters_or_a_jobs(sky):
    free = lambda: sky("gpus", "list", "T4").split(" free")[0].split("  ")[-1].strip()
    waits = lambda job: "nvidia.com/gpu is in use" in sky.trainyard("explain", job)
    job = lambda name: sky.trainyard("run", "-d", "--name", name, "--runtime", "plain", "--gpus", "1", str(script))
    script = sky.work / "holds.sh"
    script.write_text("until [ -e go ]; do sleep 0.1; done\n")
    assert "T4" in sky("gpus", "list") and free() == "1 of 1"
    sky("launch", "-y", "-c", "has", "--gpus", "T4")
    assert free() == "0 of 1"
    job("one")
    sky.until("the job waits for the cluster", lambda: waits("one"))
    assert "0 of 1 free" in sky("gpus", "list", "--infra", "local")

    sky("stop", "-y", "has")
    sky.trainyard("wait", "one", "--for", "running", "--timeout", f"{WAIT}s")
    outs: list[str] = []
    start = threading.Thread(target=lambda: outs.append(sky("start", "-y", "has")))
    start.start()
    machines = ["kubectl", "--kubeconfig", sky.home / "kubeconfig", "get", "machines", "-o", "json"]
    sky.until("the cluster waits for the job", lambda: b"0 of 1 NVIDIA T4 free" in subprocess.run(machines, capture_output=True, env=sky.env).stdout)
    (sky.work / "go").touch()
    start.join()
    assert "Waiting: this machine has 0 of 1 NVIDIA T4 free" in outs[0] and "Cluster has started" in outs[0] and free() == "0 of 1"
    sky("down", "-y", "has")
    sky.until("nobody has it", lambda: free() == "1 of 1")


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


def test_a_cluster_that_is_too_small_is_told(sky):
    sky("launch", "-y", "-d", "-c", "small", "--infra", "local", "--cpus", "1+", "true")
    for words, says in (
        (["--cpus", "4096"], "<Cloud>(cpus=4096)"), (["--memory", "1000000"], "mem=1000000"), (["--gpus", "T4"], "{'T4': 1}"),
        (["--num-nodes", "2"], "2x <Cloud>()"), (["--use-spot"], "[Spot]"), (["--infra", "k8s/x"], "in region 'x'"),
    ):  # fmt: skip
        out = sky("launch", "-y", "-c", "small", *words, "echo ran", code=1)
        assert "sky.exceptions.ResourcesMismatchError" in out and says in out and ") ran" not in out, out
    assert "To fix: specify a new cluster name, or down the existing cluster first: trainyard sky down small" in sky(
        "launch", "-y", "-c", "small", "--cpus", "4096", "true", code=1
    )
    assert ") ran" in sky("launch", "-y", "-c", "small", "--cpus", "1+", "--memory", "0.1+", "echo ran")
    # a job holds neither processors nor memory
    assert ") ran" in sky("exec", "small", "--cpus", "4096", "echo ran")
    sky("down", "-y", "small")


def test_waiting_for_work_needs_a_time(sky):
    out = sky("launch", "-y", "-c", "never", "--infra", "local", "--wait-for", "jobs", "true", code=1)
    assert "--wait-for jobs needs --idle-minutes-to-autostop or --down" in out
    assert "never" not in [one["name"] for one in sky.clusters()]


def test_setup_is_left_out_where_it_is_done(sky):
    task = sky.work / "fast.yaml"
    text = "resources: {infra: local}\nsetup: echo setting up\nrun: echo ran\n"
    task.write_text(text)
    fast = lambda: sky("launch", "-y", "--fast", "-c", "fast", "fast.yaml")
    out = sky("launch", "-y", "--no-setup", "-c", "fast", "fast.yaml")
    assert ") ran" in out and "setting up" not in out
    assert ") setting up" in fast(), "nothing has set it up yet"
    out = fast()
    assert ") ran" in out and "setting up" not in out
    task.write_text(text.replace("setting up", "setting up anew"))
    assert ") setting up anew" in fast()
    task.write_text(text + "envs: {A: b}\n")
    assert ") setting up" in fast()
    assert ") setting up" in sky("launch", "-y", "-c", "fast", "fast.yaml"), "without --fast it is done each time"
    assert "UP" in sky("status", "--refresh", "fast")
    sky("down", "-y", "fast")


def test_the_last_lines_come_first_and_the_rest_follows(sky):
    script = "for i in 1 2 3 4 5; do echo line $i; done; until [ -e ~/go ]; do sleep 0.1; done; echo the end"
    sky("launch", "-y", "-d", "-c", "tail", "--infra", "local", script)
    sky.until("its lines are there", lambda: "line 5" in sky("logs", "tail", "--no-follow", code=101))
    follow = subprocess.Popen(
        [BINARY, "sky", "logs", "tail", "--tail", "2"], env=sky.env, cwd=sky.work, stdout=subprocess.PIPE, text=True
    )
    lines = [follow.stdout.readline() for _ in range(3)]
    assert "Tailing logs of job 1" in lines[0] and [line.rsplit(") ", 1)[-1] for line in lines[1:]] == ["line 4\n", "line 5\n"]
    (sky.home / "machines" / sky.machines()[0] / "home/go").touch()
    rest = follow.communicate(timeout=WAIT)[0]
    assert rest.splitlines()[0].endswith(") the end") and follow.returncode == 0, rest
    assert sky("logs", "tail", "--tail", "1").splitlines()[0].endswith(") the end")
    sky("down", "-y", "tail")


def test_a_pool_with_a_fault_is_left_out_alone(sky):
    pools = sky.root / ".sky/ssh_node_pools.yaml"
    pools.parent.mkdir(exist_ok=True)
    pools.write_text("good: {hosts: [203.0.113.1]}\ntwice: {user: u, hosts: [203.0.113.2, {ip: 203.0.113.2}]}\n")
    out = sky("launch", "-y", "-c", "x", "--infra", "ssh/twice", "true", code=1)
    assert 'ssh/twice is left out: ~/.sky/ssh_node_pools.yaml: line 2, column 39: host "203.0.113.2" is already in pool "twice"' in out, out
    rows = {line.split()[0]: line for line in sky("check", "ssh").splitlines() if line.strip()}
    assert "203.0.113.1: " in rows["ssh/good"], "it was tried"
    assert rows["ssh/twice"].split()[1] == "no" and "is already in pool" in rows["ssh/twice"], rows
    plan = sky("launch", "--dryrun", "--infra", "ssh/good", "--gpus", "H100:8", "true")
    assert "SSH (good)" in plan
    pools.unlink()


def test_options_that_are_not_there_say_so(sky):
    for words in (
        ["launch", "-w", "team", "--infra", "local", "true"], ["launch", "--clone-disk-from", "x", "true"],
        ["launch", "--docker", "true"], ["launch", "--config", "aws.vpc_name=x", "true"], ["status", "--endpoints", "x"],
        ["logs", "x", "--provision"], ["check", "-w", "team"], ["gpus", "list", "-v"],
    ):  # fmt: skip
        out = sky(*words, code=1)
        assert len(out.splitlines()) == 1 and ("is not there: " in out or "has no effect here" in out), out
    for key, value in (("volumes", "{/mnt/x: y}"), ("file_mounts", "{~/x: s3://a/b}")):
        (sky.work / "odd.yaml").write_text(f"resources: {{infra: local}}\n{key}: {value}\nrun: echo\n")
        out = sky("launch", "-y", "-c", "odd", "odd.yaml", code=1)
        assert any(says in out for says in ("volumes are not there", "nothing is fetched")), out
    assert "--graceful-timeout needs --graceful" in sky("down", "-y", "x", "--graceful-timeout", "3", code=2)
    assert "--worker must be a positive integer" in sky("logs", "x", "-w", "0", code=2)
    assert "ambiguous" in sky("logs", "x", "-s", "--status", code=2)
    assert sky.clusters() == []


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
    assert "--resize` is not there" in sky("launch", "-y", "-c", "x", "--infra", "local", "--resize", "true", code=1)
    assert "--git-ref needs --git-url" in sky("launch", "-y", "-c", "x", "--infra", "local", "--git-ref", "main", "true", code=1)
    assert "Cannot use --workdir together" in sky("launch", "-y", "--workdir", ".", "--git-url", "x", "true", code=1)
    out = sky("launch", "-y", "-c", "big", "--infra", "local", "--gpus", "H100:64", "true", code=1)
    assert "ResourcesUnavailableError" in out and "H100" in out
    assert sky.clusters() == [] and sky.machines() == []


def test_a_script_longer_than_an_argument_may_be_runs(sky):
    """Linux takes 128 KiB for one argument."""
    lines = "".join(f"  : {'ä' * 40} {i}\n" for i in range(3000))
    (sky.work / "long.yaml").write_text(f"setup: |\n{lines}  echo set up\nrun: |\n{lines}  read line; echo \"the end $line.\"\n")
    told = sky("launch", "-y", "-c", "long", "long.yaml")
    assert "set up" in told and "the end ." in told and "SUCCEEDED" in told
    sky("down", "-y", "long")


@pytest.mark.parametrize("by", ["", "1"], ids=["a folder here", "a pod there"])
def test_what_was_deleted_here_goes_there(sky, monkeypatch, by):
    """A folder becomes a file, in the working directory and in file_mounts, and the other way round; what a job wrote stays."""
    if by:
        monkeypatch.setitem(sky.env, "TRAINYARD_SKY_BY_PODS", by)
    code, conf = sky.work / f"sent{by}", sky.work / f"conf{by}"
    for folder in (code / "model", conf):
        folder.mkdir(parents=True)
        (folder / "x").write_text("x")
    for name in ("data", "old", "changed"):
        (code / name).write_text(name)
    (sky.work / "t.yaml").write_text(
        f"resources: {{infra: local}}\nworkdir: sent{by}\nfile_mounts: {{~/conf: conf{by}}}\n"
        "run: ls -F1 | tr '\\n' ' '; ls -dF ~/conf* | tr '\\n' ' '; echo mine > result; echo mine > changed\n"
    )
    assert ") changed data model/ old " in sky("launch", "-y", "-c", "m", "t.yaml")
    shutil.rmtree(code / "model")
    shutil.rmtree(conf)
    for name in ("data", "old", "changed"):
        (code / name).unlink()
    (code / "model").write_text("a file")
    conf.write_text("a file")
    (code / "data").mkdir()
    out = sky("launch", "-y", "-c", "m", "t.yaml")
    assert ") changed data/ model result " in out and "/conf " in out, out
    sky("down", "-y", "m")
