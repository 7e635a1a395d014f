"""The manifests that arguments make: those of `sdk/golden`, which the command line is held to as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from openshift_ai_sdk.training import MPIJob, MPIJobInvalidError, ResourceRequirements, _local
from openshift_ai_sdk.training._manifest import Draft, build

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*.yaml"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: str(path.stem))
def test_manifests_are_those_of_the_command_line(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    arguments: dict[str, Any] = case["sdk"]
    if "resources" in arguments:
        arguments["resources"] = ResourceRequirements(**arguments["resources"])
    if "says" in case:
        with pytest.raises(MPIJobInvalidError) as refused:
            MPIJob(**arguments)
        assert (refused.value.field, case["says"] in str(refused.value)) == (case["field"], True), refused.value
        return
    assert MPIJob(**arguments).to_dict() == case["manifest"]


def test_there_are_golden_manifests() -> None:
    assert len(GOLDEN) >= 15


def test_the_yaml_says_the_same() -> None:
    job = MPIJob("train", workers=2, image="i", command="a")
    assert yaml.safe_load(job.to_yaml()) == job.to_dict()


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"workers": True}, "workers"),
        ({"workers": "4"}, "workers"),
        ({"workers": 2**31}, "workers"),
        ({"implementation": "LAM"}, "implementation"),
        ({"implementation": None}, "implementation"),
        ({"retries": -1}, "retries"),
        ({"resources": ResourceRequirements(gpu=-1)}, "gpu"),
        ({"resources": ResourceRequirements(cpu="-1")}, "cpu"),
        ({"command": []}, "command"),
        ({"name": None}, "name"),
        ({"env": {"LR": 0.1}}, "env"),
        ({"env": {1: "one"}}, "env"),
        ({"resources": {"gpu": 1}}, "resources"),
    ],
)
def test_a_value_that_cannot_be_right_is_named(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(MPIJobInvalidError) as refused:
        MPIJob(**{"name": "a", "workers": 2, "image": "i", "command": ["a"], **arguments})
    assert refused.value.field == field


@pytest.mark.parametrize("word", ["intel", "Intel", "INTEL"])
def test_an_implementation_is_written_as_on_the_command_line(word: str) -> None:
    job = MPIJob("a", workers=2, image="i", command=["a"], implementation=word)
    assert "mpiImplementation: Intel\n" in job.to_yaml()


def test_a_laptop_s_pods_find_what_the_caller_finds() -> None:
    draft = Draft("a", 2, "i", "python train.py", env={"PATH": "/mine"}, working_dir="/w")
    job = build(draft, {"PATH": "/usr/bin", "VIRTUAL_ENV": "/v"})
    container = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["workingDir"] == "/w"
    assert container["env"] == [{"name": "VIRTUAL_ENV", "value": "/v"}, {"name": "PATH", "value": "/mine"}]


@pytest.mark.parametrize(("given", "folder"), [(None, "."), ("sub", "sub"), ("/data", "/data")])
def test_folders_of_a_laptop_begin_where_the_caller_is(given: str | None, folder: str) -> None:
    assert _local.folder(given) == str(Path.cwd() / folder)
