"""What a TrainJob leaves behind: logs and endings of all of its runs, kept with it and gone with it."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import pathlib
import ssl
import stat
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from conftest import Yard, plain_runtime, wait_for


def history(yard: Yard, name: str) -> dict:
    path = f"/apis/history.trainyard.dev/v1alpha1/namespaces/default/trainjobs/{name}"
    return json.loads(yard.kubectl("get", "--raw", path).stdout)


def log(yard: Yard, name: str, pod: dict, attempt: int = 0, more: str = "") -> str:
    path = f"/apis/history.trainyard.dev/v1alpha1/namespaces/default/trainjobs/{name}/log"
    query = f"pod={pod['pod']['metadata']['uid']}&container=node&attempt={attempt}{more}"
    return yard.kubectl("get", "--raw", f"{path}?{query}").stdout


def apply(yard: Yard, name: str, runtime: str, script: str, nodes: int = 1, **annotations: str) -> None:
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": name, "annotations": {f"trainyard.dev/{k}": v for k, v in annotations.items()}},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": {"numNodes": nodes, "command": ["sh", "-c", script]}},
    }  # fmt: skip
    yard.kubectl("apply", "-f", "-", input=json.dumps(job))


def ended(yard: Yard, name: str) -> None:
    yard.run("wait", name, "--for", "finished", "--timeout", "60", check=False)


def pods_are_gone(yard: Yard, name: str) -> None:
    yard.kubectl("delete", "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={name}")
    past = history(yard, name)["pods"]
    assert past and not any(pod["live"] for pod in past)


def kept(yard: Yard) -> list[str]:
    """The logs that lie there; folders may go while they are looked at."""
    return [name for _, _, names in os.walk(yard.home / "history") for name in names if name.endswith(".log")]


def test_logs_of_pods_that_are_gone_are_kept(yard: Yard, plain: str) -> None:
    apply(yard, "gone", plain, "echo one; echo two $JOB_COMPLETION_INDEX; exit 3", nodes=2)
    ended(yard, "gone")
    live = history(yard, "gone")
    assert [pod["live"] for pod in live["pods"]] == [True, True]
    pods_are_gone(yard, "gone")

    def check() -> None:
        past = history(yard, "gone")
        assert past["metadata"] == live["metadata"]
        for pod, was in zip(past["pods"], live["pods"], strict=True):
            rank = pod["pod"]["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
            assert pod["containers"] == was["containers"]
            assert pod["pod"]["status"]["phase"] == "Failed"
            run = pod["containers"][0]["attempts"][0]
            assert (run["exitCode"], run["reason"], pod["attempt"]) == (3, "Error", 1)
            assert 100_000 < run["peakMemoryBytes"] < 1 << 30
            assert run["startedAt"] < run["finishedAt"]
            assert log(yard, "gone", pod) == f"one\ntwo {rank}\n"
            assert log(yard, "gone", pod, more="&tailLines=1") == f"two {rank}\n"

    check()
    yard.down()
    yard.up()
    check()
    yard.kill()
    yard.up()
    check()
    private = [yard.home / "history", *(path for path in (yard.home / "history").rglob("*") if path.is_file())]
    assert len(private) > 4 and not any(stat.S_IMODE(path.stat().st_mode) & 0o077 for path in private)
    assert not list((yard.home / "node/pods").iterdir()), "nothing else of them stays"

    # of another job's pods, or another attempt, there is no log here
    apply(yard, "other", plain, "exit 0")
    ended(yard, "other")
    with pytest.raises(AssertionError, match="has had no pod"):
        log(yard, "other", live["pods"][0])
    with pytest.raises(AssertionError, match="has had no attempt 1"):
        log(yard, "gone", live["pods"][0], attempt=1)

    yard.run("delete", "gone", "other")
    wait_for("what was kept to be removed", lambda: not kept(yard))


def test_a_job_deleted_in_a_crash_leaves_nothing(yard: Yard, plain: str) -> None:
    apply(yard, "crash", plain, "echo x; exit 3")
    ended(yard, "crash")
    pods_are_gone(yard, "crash")
    yard.run("delete", "crash", "--no-wait")
    yard.kill()
    yard.up()
    wait_for("what was kept to be removed", lambda: not kept(yard))


def test_a_job_made_again_under_its_name_has_its_own_history(yard: Yard, plain: str) -> None:
    for words in ("first", "second"):
        apply(yard, "again", plain, f"echo {words}; exit 3")
        ended(yard, "again")
        pods_are_gone(yard, "again")
        (pod,) = history(yard, "again")["pods"]
        assert log(yard, "again", pod) == f"{words}\n"
        yard.run("delete", "again")


def test_every_attempt_of_a_retried_job_is_kept(yard: Yard, plain: str) -> None:
    apply(yard, "retried", plain, "echo try; exit 3", retries="2", **{"retry-backoff": "0s"})
    ended(yard, "retried")
    pods = history(yard, "retried")["pods"]
    assert [(pod["attempt"], log(yard, "retried", pod)) for pod in pods] == [(n, "try\n") for n in (1, 2, 3)]
    yard.run("delete", "retried")


def lines(yard: Yard, *words: str) -> list[str]:
    return yard.run("logs", *words).stdout.splitlines()


def test_logs_show_every_attempt(yard: Yard, plain: str, tmp_path: pathlib.Path) -> None:
    count = tmp_path / "count"
    script = f"n=$(cat {count}-$JOB_COMPLETION_INDEX); echo $((n + 1)) > {count}-$JOB_COMPLETION_INDEX; echo try $n; echo end; exit 3"
    for rank in (0, 1):
        pathlib.Path(f"{count}-{rank}").write_text("1")
    apply(yard, "shown", plain, script, nodes=2, retries="2", **{"retry-backoff": "0s", "failure-policy": "fail-fast"})
    ended(yard, "shown")
    pods_are_gone(yard, "shown")
    done = yard.run("logs", "shown")
    assert done.stdout.splitlines() == ["[rank 0] try 3", "[rank 0] end", "[rank 1] try 3", "[rank 1] end"]
    assert "the last of 3 attempts" in done.stderr and "logs shown --previous" in done.stderr
    assert lines(yard, "shown", "--previous", "--rank", "1") == ["[rank 1] try 2", "[rank 1] end"]
    assert lines(yard, "shown", "--attempt", "1", "--grep", "t.y", "--no-prefix") == ["try 1", "try 1"]
    assert lines(yard, "shown", "--attempt", "all", "--rank", "0", "--tail", "1") == [
        f"[rank 0, attempt {n}] end" for n in (1, 2, 3)
    ]
    data = [json.loads(line) for line in lines(yard, "shown", "--rank", "1", "-o", "json")]
    assert [(line["line"], line["attempt"], line["step"]) for line in data] == [("try 3", 3, "node-1"), ("end", 3, "node-1")]
    assert lines(yard, "shown", "--since", data[0]["time"], "--rank", "1") == ["[rank 1] try 3", "[rank 1] end"]
    assert lines(yard, "shown", "--since", "2100-01-01T00:00:00Z") == []
    wrong = yard.run("logs", "shown", "--attempt", "4", check=False)
    assert wrong.returncode == 2 and "its attempts are 1 to 3" in wrong.stderr
    followed = yard.run("logs", "-f", "shown", check=False)
    assert followed.returncode == 3 and followed.stdout.count("try 3") == 2 and "try 2" not in followed.stdout
    yard.run("delete", "shown")


def test_a_run_prints_every_line_of_pods_that_are_gone_at_once(yard: Yard, tmp_path: pathlib.Path) -> None:
    """A Job that may restart its containers deletes its pods as soon as it fails: what they printed is read all the same."""
    yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("short", "OnFailure")))
    script = tmp_path / "short.py"
    # a rank that fails stops the others: neither does before both have printed
    script.write_text(
        "import os, pathlib, time\n"
        "print('\\n'.join(f'line {n}' for n in range(5000)), flush=True)\n"
        f"there = pathlib.Path({str(tmp_path)!r})\n"
        "(there / os.environ['JOB_COMPLETION_INDEX']).touch()\n"
        "while not all((there / rank).exists() for rank in '01'): time.sleep(0.01)\n"
        "raise SystemExit(5)\n"
    )
    done = yard.run("run", "-o", "json", "--runtime", "short", "--nodes", "2", "--name", "short", str(script), check=False)
    assert done.returncode == 5, done.stderr
    data = [json.loads(line) for line in done.stdout.splitlines()]
    for rank in (0, 1):
        printed = [line["line"] for line in data if line["rank"] == rank and line["attempt"] == 1]
        assert printed == [f"line {n}" for n in range(5000)], len(printed)
    assert not any(pod["live"] for pod in history(yard, "short")["pods"])
    yard.run("delete", "short")


def test_a_suspended_jobs_logs_are_kept(yard: Yard, plain: str, tmp_path: pathlib.Path) -> None:
    flag = tmp_path / "flag"
    apply(yard, "paused", plain, f"echo run; test -e {flag} || sleep 100")
    yard.run("wait", "paused", "--for", "running", "--timeout", "60")
    yard.run("suspend", "paused")
    wait_for("its pods to go", lambda: [pod["live"] for pod in history(yard, "paused")["pods"]] == [False])
    flag.touch()
    yard.run("resume", "paused")
    ended(yard, "paused")
    pods = history(yard, "paused")["pods"]
    assert [log(yard, "paused", pod) for pod in pods] == ["run\n", "run\n"]
    first = pods[0]["containers"][0]["attempts"][0]
    assert (first["exitCode"], first["signal"]) == (143, 15)
    yard.run("delete", "paused")


def test_restarts_of_a_container_are_runs_of_their_own(yard: Yard, tmp_path: pathlib.Path) -> None:
    """Upstream's semantics, by kubectl: the container is started again in its pod, and the job is deleted after its end."""
    yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("restarting", "OnFailure", 1)))
    count = tmp_path / "count"
    apply(yard, "restarts", "restarting", f"echo x >> {count}; echo run $(wc -l < {count}); exit 4")
    ended(yard, "restarts")
    (pod,) = history(yard, "restarts")["pods"]
    runs = pod["containers"][0]["attempts"]
    assert [(run["attempt"], run["exitCode"]) for run in runs] == [(0, 4), (1, 4)]
    assert [log(yard, "restarts", pod, n) for n in (0, 1)] == ["run 1\n", "run 2\n"]
    assert not pod["live"], "a Job that failed deletes what could start again"
    yard.run("delete", "restarts")
    wait_for("what was kept to be removed", lambda: not kept(yard))


class Kubelets(ThreadingHTTPServer):
    """A cluster's API server before ours: without history, and with a kubelet that is restarted while its first log is read, which
    ends the stream as if it were the log's end."""

    daemon_threads = True

    def __init__(self, yard: Yard):
        config = yaml.safe_load((yard.home / "kubeconfig").read_text())
        self.to = config["clusters"][0]["cluster"]["server"].removeprefix("https://")
        self.token = config["users"][0]["user"]["token"]
        self.trust = ssl._create_unverified_context()
        self.logs = 0
        super().__init__(("127.0.0.1", 0), Passing)
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.server_port}"}
        self.kubeconfig = yard.home / "through.kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Kubelets

    def do_GET(self) -> None:
        if self.path.startswith("/apis/history.trainyard.dev"):
            return self.send_error(404)
        server = self.server
        connection = http.client.HTTPSConnection(server.to, context=server.trust)
        connection.request("GET", self.path, headers={"Authorization": f"Bearer {server.token}", "Accept": "application/json"})
        answer = connection.getresponse()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type", "application/json"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        lines_left = math.inf
        if "/log?" in self.path:
            server.logs += 1
            lines_left = 15 if server.logs == 1 else math.inf
        with contextlib.suppress(OSError):
            while lines_left > 0 and (line := answer.readline()):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
                lines_left -= 1
            self.wfile.write(b"0\r\n\r\n")
        connection.close()

    def log_message(self, *_: object) -> None:
        pass


def test_the_end_of_a_stream_is_not_the_end_of_a_container(yard: Yard, plain: str, tmp_path: pathlib.Path) -> None:
    go = tmp_path / "go"
    script = f"for n in $(seq 30); do echo line $n; done; until test -e {go}; do sleep 0.05; done; for n in $(seq 31 60); do echo line $n; done; exit 6"
    cluster = Kubelets(yard)
    apply(yard, "kubelet", plain, script)
    env = {**yard.env, "KUBECONFIG": str(cluster.kubeconfig)}
    env.pop("TRAINYARD_HOME")
    followed = yard.spawn("logs", "-f", "kubelet", "--no-prefix", env=env)
    wait_for("the log to be read on", lambda: cluster.logs > 1)
    go.touch()
    printed, _ = followed.communicate(timeout=60)
    assert printed.splitlines() == [f"line {n}" for n in range(1, 61)]
    assert followed.returncode == 6
    assert lines(yard, "kubelet", "--tail", "1", "--kubeconfig", str(cluster.kubeconfig)) == ["[rank 0] line 60"]
    yard.run("delete", "kubelet")
    cluster.shutdown()
