"""`kubectl odh mpijob`, `trainyard mpijob` and the Python SDK as their users call them, against a control plane of this machine.

No controller for MPIJobs runs in most of these tests: what one would write, the test writes.
"""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import yaml
from conftest import BINARY, ROOT, Yard, stop, write

CRD = ROOT / "manifests/crds/mpi/kubeflow.org_mpijobs.yaml"
FLAGS = ["--workers", "2", "--image", "none", "--command", "python train.py"]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("home"), "--no-node", "--controllers", "gc,namespace,serviceaccount")
    yard.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    yard.kubectl("wait", "--for=condition=Established", "crd/mpijobs.kubeflow.org")
    yield yard
    stop(yard)


@pytest.fixture(scope="module")
def plugins(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a user who has installed the plugin, and whose kubectl has the kubeconfig."""
    folder = tmp_path_factory.mktemp("plugins")
    program = folder / "program/trainyard"
    program.parent.mkdir()
    shutil.copy(BINARY, program)
    done = subprocess.run([program, "plugin", "install", "--dir", folder / "bin"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "is not there: export PATH=" in done.stderr
    env = {**yard.env, "PATH": f"{folder}/bin:{os.environ['PATH']}", "KUBECONFIG": yard.kubeconfig}
    del env["TRAINYARD_HOME"]
    return env


def kubectl(env: dict[str, str], *words: str, check: bool = True) -> subprocess.CompletedProcess:
    done = subprocess.run(["kubectl", *words], capture_output=True, text=True, timeout=60, env=env)
    assert not check or done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done


def is_there(yard: Yard, name: str) -> bool:
    return name in yard.kubectl("get", "mpijobs", "-A", "-o", "name").stdout


@pytest.fixture
def job(yard: Yard, request: pytest.FixtureRequest) -> Iterator[str]:
    """An MPIJob of two workers, of a name of its own."""
    name = f"j{abs(hash(request.node.name)) % 10**8}"
    yard.run("mpijob", "create", name, *FLAGS)
    yield name
    yard.kubectl("delete", "mpijob", name, "--ignore-not-found", "--wait=false")


def set_status(yard: Yard, name: str, *conditions: tuple[str, str], **status: object) -> None:
    """What a controller would write: conditions that hold, with their messages."""
    holds = [{"type": kind, "status": "True", "reason": f"MPIJob{kind}", "message": text} for kind, text in conditions]
    body = json.dumps({"status": {"conditions": holds, **status}})
    yard.kubectl("patch", "mpijob", name, "--subresource=status", "--type=merge", "-p", body)


def test_kubectl_finds_the_plugin_and_hands_its_flags_on(yard: Yard, plugins: dict[str, str], tmp_path: pathlib.Path) -> None:
    assert "/kubectl-odh" in kubectl(plugins, "plugin", "list").stdout
    yard.kubectl("create", "namespace", "team")
    made = kubectl(plugins, "odh", "mpijob", "create", "train", "-n", "team", "--workers", "4", "--gpu", "1", "--image", "none",
                   "--command", "python 'my train.py'", "-o", "yaml")  # fmt: skip
    job = yaml.safe_load(made.stdout)
    spec = job["spec"]["mpiReplicaSpecs"]
    launcher, worker = (spec[role]["template"]["spec"]["containers"][0] for role in ("Launcher", "Worker"))
    assert launcher["command"] == ["mpirun", "-n", "4", "python", "my train.py"]
    assert worker["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert (spec["Worker"]["replicas"], job["metadata"]["namespace"], job["metadata"]["uid"] != "") == (4, "team", True)
    assert worker["workingDir"] == os.getcwd(), "pods are processes of this machine, and the script is where the caller is"
    # each answer in all its forms
    table = kubectl(plugins, "odh", "mpijob", "get", "-n", "team").stdout.split()
    assert table[:7] == ["NAME", "STATE", "WORKERS", "AGE", "train", "Created", "0/4"]
    assert kubectl(plugins, "odh", "mpijob", "get", "train", "-n", "team", "-o", "name").stdout == "mpijob.kubeflow.org/train\n"
    assert json.loads(kubectl(plugins, "odh", "mpijob", "get", "train", "-n", "team", "-o", "json").stdout)["kind"] == "MPIJob"
    assert "OpenMPI" in kubectl(plugins, "odh", "mpijob", "get", "-A", "-o", "wide").stdout
    assert kubectl(plugins, "odh", "mpijob", "delete", "train", "-n", "team").stdout == "mpijob.kubeflow.org/train deleted\n"
    assert not is_there(yard, "train")
    refused = kubectl(plugins, "--context", "x", "odh", "mpijob", "get", check=False)
    assert refused.returncode != 0, "kubectl's own: flags come after the plugin's name"


def test_the_plugin_goes_where_kubectl_goes(plugins: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Without $KUBECONFIG to ~/.kube/config, also where this machine's control plane runs."""
    env = {**plugins, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    shutil.copytree(pathlib.Path(env.pop("KUBECONFIG")).parent, tmp_path / "data/trainyard", ignore=lambda *_: {"store.db", "node"})
    shutil.copy(plugins["KUBECONFIG"], write(tmp_path / ".kube/config", ""))
    assert "no MPIJobs in namespace elsewhere" in kubectl(env, "odh", "mpijob", "get", "-n", "elsewhere").stderr
    done = kubectl({**env, "TRAINYARD_HOME": str(tmp_path / "none")}, "odh", "mpijob", "get", check=False)
    assert done.returncode == 4, "who names a home means it"


@pytest.mark.parametrize("name", ["oc-odh", "kubectl-odh"])
def test_all_names_mean_the_same(plugins: dict[str, str], name: str) -> None:
    program = pathlib.Path(plugins["PATH"].split(":")[0]) / name
    words = ["mpijob", "create", "same", *FLAGS, "--dry-run=client", "-o", "yaml"]
    told = {
        subprocess.run(line, capture_output=True, text=True, timeout=60, env=plugins, check=True).stdout
        for line in ([program, *words], [BINARY, *words], [BINARY, "odh", *words])
    }
    assert len(told) == 1
    assert yaml.safe_load(told.pop())["metadata"]["name"] == "same"


def test_kubectl_completes_the_plugin(yard: Yard, plugins: dict[str, str], job: str) -> None:
    """As kubectl's completion scripts ask: `kubectl __complete`."""

    def offered(*words: str) -> list[str]:
        told = kubectl(plugins, "__complete", "odh", *words).stdout.splitlines()
        return [line.split("\t")[0] for line in told]

    verbs = offered("mpijob", "")
    assert {"create", "get", "describe", "logs", "delete", "suspend", "resume", "wait", "scale", ":4"} <= set(verbs)
    assert offered("mpijob", "logs", "--wor") == ["--worker", ":4"]
    assert job in offered("mpijob", "describe", "")
    assert job in offered("mpijob", "delete", job, "")
    assert offered("mpijob", "describe", "-n", "nowhere", "") == [":0"] or job not in offered("mpijob", "describe", "-n", "nowhere", "")


def test_bash_completes_the_plugin_through_kubectl(plugins: dict[str, str]) -> None:
    script = kubectl(plugins, "completion", "bash").stdout
    asked = (
        f"{script}\nCOMP_WORDS=(kubectl odh mpijob susp) COMP_CWORD=3 COMP_LINE='kubectl odh mpijob susp' COMP_POINT=23 COMP_TYPE=9\n"
        "_get_comp_words_by_ref() { cur=susp; prev=mpijob; words=(kubectl odh mpijob susp); cword=3; }\n"
        "__start_kubectl; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "--norc", "-c", asked], capture_output=True, text=True, timeout=60, env=plugins)
    assert done.stdout.strip() == "suspend", done.stderr


def test_install_leaves_other_peoples_files_alone(plugins: dict[str, str], tmp_path: pathlib.Path) -> None:
    install = [BINARY, "plugin", "install", "--dir", str(tmp_path)]
    foreign = write(tmp_path / "oc-odh", "#!/bin/sh\n", 0o755)
    done = subprocess.run(install, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"{foreign} is there and is not ours" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["oc-odh"] and foreign.read_text() == "#!/bin/sh\n"
    foreign.unlink()
    (tmp_path / "kubectl-odh").symlink_to("/gone/trainyard")
    for _ in range(2):
        subprocess.run(install, capture_output=True, timeout=60, check=True)
    links = {path.name: path.resolve() for path in tmp_path.iterdir()}
    assert links == dict.fromkeys(["kubectl-odh", "oc-odh", "kubectl_complete-odh"], BINARY.resolve())
    longer = write(tmp_path / "kubectl-odh-mpijob", "#!/bin/sh\n", 0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told = subprocess.run(install, capture_output=True, text=True, timeout=60, env=env).stderr
    assert f"{longer} is what `odh mpijob` calls" in told


def test_a_dry_run_of_the_client_asks_nobody(tmp_path: pathlib.Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    words = [BINARY, "mpijob", "create", "a", *FLAGS, "--dry-run=client"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env, check=True)
    assert done.stdout == "mpijob.kubeflow.org/a created (dry run)\n"
    made = subprocess.run([*words, "-o", "yaml"], capture_output=True, text=True, timeout=60, env=env, check=True).stdout
    write(tmp_path / "a.yaml", made)
    again = subprocess.run([BINARY, "mpijob", "create", "-f", tmp_path / "a.yaml", "--dry-run=client", "-o", "yaml"],
                           capture_output=True, text=True, timeout=60, env=env, check=True).stdout  # fmt: skip
    assert again == made


def test_a_file_goes_as_it_is(yard: Yard, tmp_path: pathlib.Path) -> None:
    """Also what flags refuse: upstream takes one worker, and so do we."""
    container = {"name": "main", "image": "none", "command": ["true"]}
    roles = {role: {"replicas": 1, "template": {"spec": {"containers": [container]}}} for role in ("Launcher", "Worker")}
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "filed", "labels": {"mine": "yes"}},
           "spec": {"mpiReplicaSpecs": roles}}  # fmt: skip
    path = write(tmp_path / "job.yaml", yaml.safe_dump(job))
    dry = yard.run("mpijob", "create", "-f", str(path), "--dry-run=server")
    assert dry.stdout == "mpijob.kubeflow.org/filed created (server dry run)\n" and not is_there(yard, "filed")
    yard.run("mpijob", "create", "-f", "-", input=path.read_text())
    found = json.loads(yard.kubectl("get", "mpijob", "filed", "-o", "json").stdout)
    assert found["metadata"]["labels"] == {"mine": "yes"} and "annotations" not in found["metadata"]
    assert found["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"] == [container]
    yard.run("delete", "mpijob/filed")


def test_a_jobs_life_by_either_name(yard: Yard, job: str) -> None:
    set_status(yard, job, ("Created", "it is created"), ("Running", "it runs"), replicaStatuses={"Worker": {"active": 2}})
    assert yard.run("get", f"mpijob/{job}").stdout.split()[4:7] == [job, "Running", "2/2"]
    assert f"mpijob.kubeflow.org/{job} running" in yard.run("wait", f"mpijob/{job}", "--for", "running").stdout
    told = yard.run("describe", f"mpijob/{job}").stdout
    for text in ("State:           Running  it runs", "2 of 2 run, 1 slot each", "mpirun -n 2 python train.py", "MPIJobRunning"):
        assert text in told, told
    assert "suspended" in yard.run("suspend", f"mpijob/{job}").stdout
    assert "Suspended" in yard.run("mpijob", "get", job).stdout
    assert "resumed" in yard.run("mpijob", "resume", job).stdout
    scaled = yard.run("mpijob", "scale", job, "--workers", "4")
    assert "scaled" in scaled.stdout and "mpirun starts no ranks beyond those that its command names" in scaled.stderr
    assert json.loads(yard.kubectl("get", "mpijob", job, "-o", "json").stdout)["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 4
    late = yard.run("mpijob", "wait", job, "--timeout", "0.1s", check=False)
    assert late.returncode == 124 and "timed out" in late.stderr
    set_status(yard, job, ("Created", ""), ("Failed", "the launcher failed"))
    failed = yard.run("mpijob", "wait", job, check=False)
    assert failed.returncode == 1 and "the launcher failed" in failed.stderr
    for verb in ("suspend", "resume"):
        over = yard.run("mpijob", verb, job, check=False)
        assert over.returncode == 1 and f"there is nothing to {verb}" in over.stderr
    assert "deleted" in yard.run("delete", f"mpijob/{job}").stdout and not is_there(yard, job)


class NoKinds(http.server.BaseHTTPRequestHandler):
    """A server that knows no MPIJobs."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"404 page not found")

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NoKinds)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "c",
              "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
              "users": [{"name": "c", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}  # fmt: skip
    yield write(tmp_path_factory.mktemp("bare") / "kubeconfig", yaml.safe_dump(config))
    server.shutdown()


TOO_LONG = "n" * 56
WRONG = {
    "one worker": (["create", "bad", "--workers", "1", *FLAGS[2:]], 2, "--workers 1: must be 2 or more"),
    "no workers": (["create", "bad", *FLAGS[2:]], 2, "--workers <N>"),
    "bad quotes": (["create", "bad", *FLAGS[:5], "python 'train.py"], 2, "a quote is not closed"),
    "name too long for its workers": (["create", TOO_LONG, *FLAGS], 2, "is too long: its last worker would be"),
    "name that is none": (["create", "Bad_1", *FLAGS], 2, "must be lower case letters"),
    "flags beside a file": (["create", "-f", "x.yaml", *FLAGS], 2, "cannot be used with"),
    "a file that is not there": (["create", "-f", "/nowhere.yaml"], 1, "/nowhere.yaml"),
    "launcher and worker": (["logs", "there", "--launcher", "--worker", "0"], 2, "'--launcher' cannot be used with '--worker <N>'"),
    "worker out of range": (["logs", "there", "--worker", "2"], 2, "no such worker; it has workers 0 to 1"),
    "no such job": (["logs", "theer"], 3, 'MPIJob "theer" not found in namespace "default"'),
    "no name": (["get", "mpijob/"], 2, "A non-empty name is required"),
    "job exists": (["create", "there", *FLAGS], 1, 'mpijobs.kubeflow.org "there" already exists'),
    "more workers than a hostfile holds": (["create", "bad", "--workers", "100000", *FLAGS[2:]], 2, "--workers 100000: the hostfile would have"),
    "scaled to too many": (["scale", "there", "--workers", "2147483647"], 2, "--workers 2147483647: the hostfile would have"),
    "a number that is none": (["scale", "there", "--workers", "99999999999"], 2, "must be 2147483647 or less"),
    "two names": (["get", "there", "too"], 2, 'does not take "too"'),
    "a timeout before now": (["wait", "there", "--timeout", "-1s"], 2, '"-1s" is not a duration'),
    "scaled to nothing": (["scale", "there", "--workers", "0"], 2, "--workers 0: must be 1 or more"),
    "a blank in the image": (["create", "bad", "--workers", "2", "--image", " ", "--command", "x"], 2, '--image " ": has a blank in it'),
    "less than no GPU": (["create", "bad", *FLAGS, "--gpu", "-1"], 2, "invalid value '-1' for '--gpu <N>'"),
    "less than no memory": (["create", "bad", *FLAGS, "--memory", "-1Gi"], 2, "--memory -1Gi: is no quantity"),
    "retries below none": (["create", "bad", *FLAGS, "--retries", "-1"], 2, "invalid value '-1' for '--retries <N>'"),
    "a worker below none": (["logs", "there", "--worker", "-1"], 2, "invalid value '-1' for '--worker <N>'"),
    "an attempt below one": (["logs", "there", "--attempt", "-1"], 2, "attempts are counted from 1"),
    "a quantity that is none": (["create", "bad", *FLAGS, "--memory", "64GB"], 2, "--memory 64GB: is no quantity"),
    "an unknown command": (["desribe", "there"], 2, 'did you mean "describe"?'),
}  # fmt: skip


@pytest.fixture(scope="module")
def there(yard: Yard) -> Iterator[str]:
    yard.run("mpijob", "create", "there", *FLAGS)
    yield "there"
    yard.run("mpijob", "delete", "there")


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_told_in_a_line(yard: Yard, plugins: dict[str, str], there: str, case: str) -> None:
    words, code, text = WRONG[case]
    before = yard.kubectl("get", "mpijobs", "-A", "-o", "name").stdout
    done = yard.run("mpijob", *words, check=False)
    first = done.stderr.splitlines()[0]
    assert (done.returncode, text in first) == (code, True), done.stderr
    assert yard.kubectl("get", "mpijobs", "-A", "-o", "name").stdout == before


def test_a_typo_in_a_files_field_is_an_error(yard: Yard) -> None:
    job = 'apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: typo}\nspec: {mpiReplicaSpecs: {}, slots: 2}\n'
    done = yard.run("mpijob", "create", "-f", "-", input=job, check=False)
    assert done.returncode == 1 and 'unknown field "spec.slots"' in done.stderr and not is_there(yard, "typo")


def test_commands_are_proposed_as_they_were_called(yard: Yard, plugins: dict[str, str], there: str) -> None:
    assert f"\n{there} " in yard.run("get", "mpijobs").stdout
    done = yard.run("mpijob", "get", "xyzzy", check=False)
    assert done.returncode == 3 and "see which there are: trainyard mpijob get" in done.stderr
    done = kubectl(plugins, "odh", "mpijob", "get", "xyzzy", check=False)
    assert done.returncode == 3 and "see which there are: kubectl odh mpijob get" in done.stderr


def test_a_file_for_another_mpi_is_told_by_its_field(yard: Yard, tmp_path: pathlib.Path) -> None:
    write(tmp_path / "mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n", 0o755)
    job = yard.run("mpijob", "create", "other", *FLAGS, "--implementation", "mpich", "--dry-run", "client", "-o", "yaml").stdout
    env = {**yard.env, "PATH": f"{tmp_path}:/bin"}
    done = yard.run("mpijob", "create", "-f", "-", input=job, env=env, check=False)
    assert done.returncode == 2 and "or set spec.mpiImplementation to OpenMPI" in done.stderr.splitlines()[0]
    job = job.replace("mpiImplementation: MPICH", "mpiImplementation: NoMPI")
    done = yard.run("mpijob", "create", "-f", "-", input=job, env=env, check=False)
    assert done.returncode == 1 and 'Unsupported value: "NoMPI"' in done.stderr.splitlines()[0], done.stderr
    assert not is_there(yard, "other")


def test_who_may_not_create_is_told(yard: Yard, plugins: dict[str, str], tmp_path: pathlib.Path) -> None:
    config = write(tmp_path / "eve", yard.run("kubeconfig", "--user", "eve").stdout, 0o600)
    done = kubectl({**plugins, "KUBECONFIG": str(config)}, "odh", "mpijob", "create", "forbidden", *FLAGS, check=False)
    first = done.stderr.splitlines()[0]
    assert done.returncode == 1 and 'User "eve" cannot create resource "mpijobs"' in first and not is_there(yard, "forbidden")


def test_a_server_without_the_kind_is_told(plugins: dict[str, str], bare: pathlib.Path) -> None:
    for words in (["get"], ["create", "none", *FLAGS]):
        done = kubectl({**plugins, "KUBECONFIG": str(bare)}, "odh", "mpijob", *words, check=False)
        assert done.returncode == 1 and "does not serve MPIJobs (kubeflow.org/v2beta1)" in done.stderr.splitlines()[0]


@pytest.mark.parametrize(("says", "implementation", "text"), [
    (None, "openmpi", "there is no mpirun on this machine: as root, apt-get install openmpi-bin"),
    (None, "mpich", "there is no mpirun on this machine: pip install mpich"),
    ("mpirun (Open MPI) 4.1.4", "intel", "is OpenMPI's, and the job is for Intel; install the other (pip install impi-rt)"),
])  # fmt: skip
def test_an_mpi_that_is_not_here_is_told(yard: Yard, tmp_path: pathlib.Path, says: str | None, implementation: str, text: str) -> None:
    if says:
        write(tmp_path / "mpirun", f"#!/bin/sh\necho '{says}'\n", 0o755)
    words = ["mpijob", "create", "lacking", *FLAGS, "--implementation", implementation]
    done = yard.run(*words, env={**yard.env, "PATH": f"{tmp_path}:/nowhere"} if not says else {**yard.env, "PATH": f"{tmp_path}:/bin"}, check=False)
    assert done.returncode == 2 and text in done.stderr.splitlines()[0] and not is_there(yard, "lacking"), done.stderr


# By the SDK: what is made, from whose kubeconfig (the control plane's without one), the exception, its field, and what it says.
BY_SDK = {
    "one worker": ("MPIJob('bad', workers=1, image='none', command='a').create()", "", "MPIJobInvalidError", "workers", "must be 2 or more"),
    "bad quotes": ("MPIJob('bad', image='none', command=\"a 'b\").create()", "", "MPIJobInvalidError", "command", "a quote is not closed"),
    "name too long for its workers": (f"MPIJob('{TOO_LONG}', image='none', command='a').create()", "", "MPIJobInvalidError", "name", "is too long"),
    "job exists": ("MPIJob('there', image='none', command='horovodrun a').create()", "", "MPIJobExistsError", "name", "already exists"),
    "no such job": ("MPIJob.get('theer')", "", "MPIJobNotFoundError", None, '"theer" not found'),
    "worker out of range": ("MPIJob.get('there').get_logs(worker=2)", "", "MPIJobInvalidError", "worker", 'MPIJob "there" has workers 0 to 1'),
    "no right": ("MPIJob('bad', image='none', command='horovodrun a').create()", "eve", "MPIJobForbiddenError", None, 'User "eve" cannot create'),
    "CRD missing": ("MPIJob('bad', image='none', command='a').create()", "bare", "MPIJobServerError", None, "no MPIJobs"),
    "no MPI": ("MPIJob('bad', image='none', command='a').create()", "", "MPIJobInvalidError", "implementation", "there is no mpirun on this machine"),
    "another's mpirun": ("MPIJob('bad', image='none', command='a', implementation='intel').create()", "openmpi", "MPIJobInvalidError",
                         "implementation", "is OpenMPI's; install the other (pip install impi-rt)"),
}  # fmt: skip


@pytest.mark.parametrize("case", BY_SDK)
def test_wrong_input_is_told_by_the_sdk(yard: Yard, there: str, bare: pathlib.Path, tmp_path: pathlib.Path, case: str) -> None:
    """In a line, as the exception that a script ends with, and nothing is made."""
    pytest.importorskip("kubernetes")
    call, where, error, field, text = BY_SDK[case]
    env = {**yard.env, "PYTHONPATH": str(ROOT / "sdk/python/src"), "PATH": str(tmp_path / "bin")}
    if where == "openmpi":
        write(tmp_path / "bin/mpirun", "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n", 0o755)
    elif where:
        eve = write(tmp_path / "eve", yard.run("kubeconfig", "--user", "eve").stdout, 0o600)
        env["KUBECONFIG"] = str({"eve": eve, "bare": bare}[where])
        del env["TRAINYARD_HOME"]
    script = "\n".join(["from openshift_ai_sdk.training import MPIJob, MPIJobError", "try:", f"    {call}",
                        "except MPIJobError as error:", "    print(repr(getattr(error, 'field', None)))", "    raise"])  # fmt: skip
    before = yard.kubectl("get", "mpijobs", "-A", "-o", "name").stdout
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=env)
    last = (done.stderr.splitlines() or [""])[-1]
    assert done.returncode == 1 and f".{error}: " in last and text in last, done.stderr
    assert done.stdout == f"{field!r}\n", "there is one exception, and it names what is wrong"
    assert yard.kubectl("get", "mpijobs", "-A", "-o", "name").stdout == before


def test_the_sdk_and_the_command_line_make_the_same(yard: Yard, plugins: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The live objects, spec by spec, of one folder and one environment."""
    pytest.importorskip("kubernetes")
    script = write(tmp_path / "snippet.py", """
from openshift_ai_sdk.training import MPIJob, ResourceRequirements, MPIJobTimeoutError
job = MPIJob("by-sdk", workers=2, image="none", command="python train.py", resources=ResourceRequirements(cpu=1, memory="1Gi"))
job.create()
print(job.get_status())
job.suspend(); print(job.get_status()); job.resume(); job.scale(3); job.scale(2)
try:
    job.wait_for_completion(timeout=0.1)
except MPIJobTimeoutError as late:
    print(late)
print([one.name for one in MPIJob.list() if one.name == "by-sdk"])
""")  # fmt: skip
    # as in an active virtual environment, where both find the same Python
    env = {**plugins, "PYTHONPATH": str(ROOT / "sdk/python/src"), "VIRTUAL_ENV": sys.prefix,
           "PATH": f"{sys.prefix}/bin:{plugins['PATH']}"}  # fmt: skip
    told = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, env=env)
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == [
        "Created", "Suspended", 'MPIJob "by-sdk" has not ended after 0.1 s: it is Created', "['by-sdk']"]  # fmt: skip
    kubectl(env, "odh", "mpijob", "create", "by-cli", *FLAGS, "--cpu", "1", "--memory", "1Gi")
    by_sdk, by_cli = (json.loads(yard.kubectl("get", "mpijob", name, "-o", "json").stdout) for name in ("by-sdk", "by-cli"))
    assert by_sdk["spec"] == by_cli["spec"]
    assert by_sdk["metadata"]["annotations"] == by_cli["metadata"]["annotations"]
    yard.run("mpijob", "delete", "by-sdk", "by-cli")
