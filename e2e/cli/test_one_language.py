"""One language for all kinds of jobs: every verb on every kind, with its name in every form that answers print."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
from conftest import Yard, stop, wait_for

SLEEP = {"command": ["sh", "-c", "echo here; exec sleep 600"]}
TRAINJOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "train"},
    "spec": {"runtimeRef": {"name": "plain"}, "trainer": SLEEP},
}
POD = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "none", **SLEEP}]}
MPIJOB = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "mpi"},
    "spec": {
        "runPolicy": {"cleanPodPolicy": "Running"},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": {**POD, "restartPolicy": "Never"}}},
            "Worker": {"replicas": 1, "template": {"spec": POD}},
        },
    },
}
SEARCH = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "OptimizationJob",
    "metadata": {"name": "search"},
    "spec": {
        "objectives": [{"metric": "loss", "direction": "Minimize"}],
        "parameters": [{"name": "lr", "searchSpace": {"uniform": {"min": "1", "max": "2"}}}],
        "numTrials": 2,
        "parallelTrials": 1,
        "trainJobTemplate": {"spec": TRAINJOB["spec"]},
    },
}
# kind, name, and what may stand before a slash
KINDS = {
    "train": ["", "trainjob/", "trainjobs/", "TrainJob/", "trainjob.trainer.kubeflow.org/"],
    "mpi": ["", "mpijob/", "mpijobs/", "MPIJob/", "mpijob.kubeflow.org/"],
    "search": ["", "optimizationjob/", "optimizationjobs/", "optimizationjob.trainer.kubeflow.org/"],
}
# what a search has no processes of its own for: the answer names its trials
OF_TRIALS = {"logs", "top", "exec", "shell", "metrics", "suspend", "resume"}
VERBS: dict[str, tuple[list[str], list[str]]] = {
    "get": ([], []),
    "describe": ([], []),
    "explain": ([], []),
    "logs": ([], []),
    "top": (["--once"], []),
    "exec": ([], ["--", "echo", "inside"]),
    "wait": (["--for", "running", "--timeout", "30"], []),
}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("language") / "home")
    folder = tmp_path_factory.mktemp("manifests")
    for name, job in (("train", TRAINJOB), ("mpi", MPIJOB), ("search", SEARCH)):
        file = folder / f"{name}.json"
        file.write_text(json.dumps(job))
        yard.run("apply", "-f", str(file))
    for name in KINDS:
        yard.run("wait", name, "--for", "running", "--timeout", "60")
    yield yard
    stop(yard)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_verb_knows_every_kind_by_every_name(yard: Yard, kind: str, verb: str) -> None:
    flags, after = VERBS[verb]
    for before in KINDS[kind]:
        done = yard.run(verb, f"{before}{kind}", *flags, *after, check=False)
        told = f"{verb} {before}{kind}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        if kind == "search" and verb in OF_TRIALS:
            assert done.returncode == 2 and "search-trial-0" in done.stderr, told
            continue
        assert done.returncode == 0, told
        assert verb != "exec" or done.stdout == "inside\n", told
        assert verb != "logs" or "here" in done.stdout, told


def test_names_that_are_printed_can_be_typed(yard: Yard) -> None:
    printed = yard.run("get", "-o", "name").stdout.split()
    assert {"trainjob.trainer.kubeflow.org/train", "mpijob.kubeflow.org/mpi"} <= set(printed)
    printed += yard.run("trials", "-o", "name").stdout.split()
    printed += [line.split()[0] for line in yard.run("get").stdout.splitlines()[1:]]
    for name in printed:
        yard.run("get", name)
        yard.run("explain", name)


def test_unknown_kinds_and_names_are_told(yard: Yard) -> None:
    for name, said in (("pod/train", "no kind of jobs"), ("mpijob/trian", "not found"), ("trian", 'did you mean "train"?')):
        done = yard.run("describe", name, check=False)
        assert done.returncode in (2, 3) and said in done.stderr, done.stderr


def test_jobs_are_suspended_resumed_and_deleted_together(yard: Yard, tmp_path: pathlib.Path) -> None:
    names = []
    for at, job in enumerate((TRAINJOB, MPIJOB)):
        job = {**job, "metadata": {"name": f"pair-{at}", "labels": {"of": "pair"}}}
        file = tmp_path / f"{at}.json"
        file.write_text(json.dumps(job))
        yard.run("apply", "-f", str(file))
        names.append(f"pair-{at}")
    for name in names:
        yard.run("wait", name, "--for", "running", "--timeout", "60")
    pods = lambda: [p for p in json.loads(yard.kubectl("get", "pods", "-o", "json").stdout)["items"] if "pair-" in p["metadata"]["name"]]  # fmt: skip
    assert yard.run("suspend", *names).stdout.count(" suspended") == 2
    assert pods() == [], "suspended: their processes have ended"
    yard.run("resume", *names)
    for name in names:
        yard.run("wait", name, "--for", "running", "--timeout", "60")
    done = yard.run("delete", "-l", "of=pair")
    assert "deleting 2 jobs (2 not finished): pair-0, mpijob/pair-1" in done.stderr
    wait_for("the pods to be gone", lambda: pods() == [])


def test_a_table_is_sorted_and_filtered(yard: Yard) -> None:
    rows = yard.run("get", "--sort", "name").stdout.splitlines()
    assert [row.split()[0] for row in rows[1:]] == sorted(row.split()[0] for row in rows[1:])
    made = [item["metadata"]["creationTimestamp"] for item in json.loads(yard.run("get", "-o", "json").stdout)["items"]]
    assert len(made) > 2 and made == sorted(made, reverse=True), "the newest is first"
    assert yard.run("get", "--state", "failed").stdout == ""
    assert yard.run("get", "--state", "runing", check=False).returncode == 2


def test_exec_begins_where_the_rank_runs(yard: Yard, tmp_path: pathlib.Path):
    """In the folder that the rank is in, with what its launcher told it."""
    code = f"cd {tmp_path} && RANK=0 WORLD_SIZE=2 SECRET=x exec sleep 600"
    yard.run("run", "--detach", "--name", "placed", "--runtime", "plain", "--", "sh", "-c", code)
    told = ["exec", "placed", "--", "sh", "-c", "pwd; echo $RANK of $WORLD_SIZE$SECRET"]
    wait_for("the rank to be there", lambda: yard.run(*told, check=False).stdout == f"{tmp_path}\n0 of 2\n")
    yard.run("delete", "placed", "-y")
