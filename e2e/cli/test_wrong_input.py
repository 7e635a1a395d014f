"""Wrong input: a clear error, and nothing lost."""

import json
import pathlib

import pytest

from conftest import Yard


def job(name: str = "j", **spec) -> str:
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
    }  # fmt: skip
    return json.dumps(body)


CASES = {
    "unknown runtime": (job(runtimeRef={"name": "nope"}), "nope"),
    "numProcPerNode 0": (job(trainer={"numProcPerNode": 0}), "numProcPerNode must be greater than or equal to 1"),
    "name too long": (job("x" * 64), "metadata.name must be no more than 63 characters"),
    "name with a dot": (job("a.b"), "metadata.name must match RFC 1035 DNS label format"),
    "negative numNodes": (job(trainer={"numNodes": -1}), "numNodes"),
    "reserved variable": (job(trainer={"env": [{"name": "PET_NNODES", "value": "1"}]}), "PET_NNODES"),
    "unknown field": (job(trainer={"numNode": 2}), 'unknown field "spec.trainer.numNode"'),
    "broken YAML": ("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n  metadata: {", "error"),
    "no kind": ('{"apiVersion": "trainer.kubeflow.org/v1alpha1", "metadata": {"name": "x"}}', "kind"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused_with_a_reason(yard: Yard, case: str):
    manifest, reason = CASES[case]
    before = yard.kubectl("get", "trainjobs", "-o", "name").stdout
    done = yard.kubectl("create", "-f", "-", input=manifest, check=False)
    assert done.returncode != 0
    assert reason in done.stderr, done.stderr
    assert yard.kubectl("get", "trainjobs", "-o", "name").stdout == before


def test_a_patch_for_an_unknown_container_is_said(yard: Yard):
    """Upstream admits it and nothing comes of it; the event must say what is wrong."""
    patch = {"manager": "example.com/test", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{
        "name": "node", "template": {"spec": {"template": {"spec": {"containers": [
            {"name": "nobody", "env": [{"name": "A", "value": "b"}]}]}}}}}]}}}}  # fmt: skip
    done = yard.kubectl("create", "-f", "-", input=job("patched", runtimePatches=[patch]), check=False)
    if done.returncode == 0:
        from conftest import wait_for

        wait_for("an event that says why", lambda: "patched" in yard.kubectl("get", "events").stdout)
        yard.kubectl("delete", "trainjob", "patched")
    else:
        assert "nobody" in done.stderr


def test_missing_script(yard: Yard, tmp_path: pathlib.Path):
    done = yard.run("run", str(tmp_path / "missing.py"), check=False)
    assert done.returncode == 2 and "missing.py" in done.stderr and "there is no such file" in done.stderr
    done = yard.run("run", str(tmp_path), check=False)
    assert done.returncode == 2 and "is not a file" in done.stderr


def test_unknown_runtime_of_run(yard: Yard, tmp_path: pathlib.Path):
    (tmp_path / "a.py").write_text("")
    done = yard.run("run", "--runtime", "nope", str(tmp_path / "a.py"), check=False)
    assert done.returncode == 2 and "trainyard runtimes" in done.stderr
    done = yard.run("run", "--runtime", "torch-distribtued", str(tmp_path / "a.py"), check=False)
    assert "--runtime torch-distribtued" in done.stderr and 'did you mean "torch-distributed"?' in done.stderr


def test_unknown_job(yard: Yard):
    for verb in ("get", "describe", "logs", "delete", "suspend", "resume", "wait"):
        done = yard.run(verb, "nothing", check=False)
        assert done.returncode == 3, (verb, done.stderr)
        assert 'TrainJob "nothing" not found' in done.stderr


def test_a_command_that_does_not_exist_is_named(yard: Yard):
    body = job("no-such", trainer={"command": ["no-such-program"], "numNodes": 1})
    yard.kubectl("create", "-f", "-", input=body)
    from conftest import wait_for

    wait_for("the reason", lambda: "no-such-program" in yard.run("describe", "no-such").stdout)
    yard.run("delete", "no-such")


def test_without_a_control_plane(tmp_path: pathlib.Path):
    import os
    import subprocess

    from conftest import BINARY

    env = {**os.environ, "TRAINYARD_HOME": str(tmp_path / "none")}
    done = subprocess.run([BINARY, "get"], capture_output=True, text=True, env=env)
    assert done.returncode == 4 and "trainyard up" in done.stderr


def test_near_names_are_offered(yard: Yard, tmp_path: pathlib.Path):
    script = tmp_path / "train.py"
    script.write_text("")

    def told(*words: str) -> tuple[int, str]:
        done = yard.run(*words, check=False)
        return done.returncode, done.stderr

    code, error = told("run", "--runtime", "torch-distribtued", str(script))
    assert code == 2 and 'did you mean "torch-distributed"?' in error
    code, error = told("run", str(tmp_path / "trian.py"))
    assert code == 2 and 'did you mean "train.py"?' in error
    yard.kubectl("create", "-f", "-", input=job("resnet-a", suspend=True))
    yard.kubectl("create", "namespace", "team")
    for verb in ("get", "logs", "delete", "resume"):
        code, error = told(verb, "rensnet-a")
        assert code == 3 and 'did you mean "resnet-a"?' in error, verb
        code, error = told("-n", "team", verb, "resnet-a")
        assert code == 3 and "there is one in namespace default" in error, verb
    for word, command in {"ps": "get", "stop": "suspend", "kill": "delete", "submit": "run", "lgos": "logs"}.items():
        code, error = told(word)
        assert code == 2 and len(error.splitlines()) == 1 and command in error, error
    code, error = told("run", "--nproc", "4", str(script))
    assert code == 2 and error.startswith("error: ") and "--nproc-per-node" in error and len(error.splitlines()) == 1


def test_our_flags_after_the_script_are_noted(yard: Yard, plain: str, tmp_path: pathlib.Path):
    (tmp_path / "show.py").write_text("import sys; print(sys.argv[1:])")
    done = yard.run("run", "--runtime", plain, str(tmp_path / "show.py"), "--nodes", "2")
    assert "['--nodes', '2']" in done.stdout, "they are the script's"
    assert done.stderr.count("note: --nodes after") == 1


def test_the_command_alone_tells_the_commands_of_a_day(yard: Yard):
    done = yard.run(check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) <= 12 and "trainyard run" in done.stderr and "--help" in done.stderr
