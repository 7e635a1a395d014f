"""Writes random task files, which `record.py` judges. `generate.py SEED FILES PLANS DIR` makes:

- FILES folders DIR/task/NAME with task.yaml and options.json, many of them faulty;
- PLANS folders DIR/optimizer/NAME with the same files; there are machines for most of them;
- PLANS / 4 job groups in DIR/group-placement.json.

Every other file of DIR/task is a recording of crates/sky/golden with something changed; with FILES come all fields with all kinds of
values, and all clouds with all that one may lack.
Left out is what COMPATIBILITY.md names: tags such as `!!set`, halves of a character, a directive inside of a document."""

from __future__ import annotations

import copy
import functools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

CLOUDS = ["aws", "gcp", "azure", "lambda", "runpod", "kubernetes", "AWS", "Gcp", "nimbus", "ssh", "slurm"]
INFRA = [
    "aws", "gcp/us-central1", "aws/us-east-1/us-east-1a", "azure/eastus", "k8s", "k8s/example", "lambda", "*", "*/us-west-2", "runpod/CA",
    "gcp/*/us-central1-a", "aws/us-east-1/us-west-2a", "aws/nowhere", "aws/us-east-9", "slurm/hpc", "ssh/pool", "aws//x", "kubernetes/nope", "GCP",
]
ACCELERATORS = [
    "V100", "V100:4", "v100:0.5", "A100-80GB:8", {"A100": 8}, {"A100": 8, "V100": 1}, ["T4:1", "L4:1"], "80GB", "80GB+", "nvidia:24GB+:2", "24GB:2",
    "tpu-v3-8", "TPU-V2-8", "H100:x", "X:1:2", {"T4": None}, {"T4": 0}, "L4:-1", "A100-80", "H1", ["80GB+", "V100"], "tpu-v6e-8", "tpu-v4-podslice:4", "1000GB",
]
TEXTS = ["a", "", "x y", "no", 'it"s', "it's", "ü", "$A/b", "${A}", "1", "8"]
SCALARS = [None, True, False, 0, 1, -1, 2.5, 1e20, "", "a", "7", [], [1], {}, {"a": 1}]

FIELDS = {
    "infra": INFRA,
    "cloud": CLOUDS,
    "region": ["us-east-1", "us-central1", "eastus", "nowhere", "us-west-2"],
    "zone": ["us-east-1a", "us-central1-b", "z"],
    "cpus": [4, "4+", 0.5, "8", "+4", "4x", 0, -1, "1_0", "inf", "nan", " 4 ", "4++", 1e3],
    "memory": [16, "16+", "16GB", "32gb+", "4x", "1.5TB", "512MB", "0", "-4", "16+GB", "1e2", "8G", "3xx", "16x+", ".5GB"],
    "accelerators": ACCELERATORS,
    "gpus": ACCELERATORS,
    "accelerator_args": [{"tpu_vm": False}, {"runtime_version": "x"}, {"tpu_name": "a", "tpu_vm": True}, {"foo": 1}],
    "instance_type": ["p3.2xlarge", "n2-standard-8", "m6i.2xlarge", "Standard_D8s_v5", "x9.huge", "gpu_1x_a10", "4CPU--16GB", "TPU-VM", "4CPU"],
    "use_spot": [True, False],
    "job_recovery": ["FAILOVER", "eager_next_region", "none", "NONE", {"strategy": None}, {"max_restarts_on_errors": 3}, {"recover_on_exit_codes": [1, 2]},
                     {"recover_on_exit_codes": [1, 1]}, {"recover_on_exit_codes": 256}, {"foo": 1}, {"strategy": "failovr"}, {}],
    "disk_size": [100, "100GB", "1TB", 256, "256GB", "1tb", "10Gi", "100MB", -5, "0", 10.0, "9999999"],
    "disk_tier": ["low", "HIGH", "best", "none", "ultra", "fast"],
    "network_tier": ["best", "Standard", "x"],
    "local_disk": ["nvme", "ssd:500", "1000+", "nvme:0", "hdd:5", "a:b:c", "nvme:300+"],
    "max_hourly_cost": [1, 0.5, 0, -1],
    "ports": [8080, "80-90", [80, "81-83", 8080], "80,81", [], "70000", "9-1", "", "a", [22, 22], "1-2-3"],
    "labels": [{"a": "b"}, {"Team": "v"}, {"a": "B C"}, {"aws:x": "y"}, {"a/b": "c"}, {}],
    "image_id": ["skypilot:gpu-ubuntu-2004", "docker:ubuntu:22.04", "ami-1", {"us-east-1": "ami-1"}, {"docker": "x"}, {"docker": "docker:x", "us-east-1": "skypilot:gpu-ubuntu-2004"},
                 " docker:a ", {"us-east-1": "docker:a", "docker": "b"}, "skypilot:nope"],
    "autostop": [True, False, 5, "10", "1h", "2D", "90s", {"idle_minutes": 3, "down": True}, {"wait_for": "JOBS"}, {"hook": "echo", "hook_timeout": 5}, {}, -1, {"down": True, "hook": "a"}],
    "priority": [0, 5, -1000, 1001, 5.0],
    "priority_class": ["high", " ", ""],
    "volumes": [[{"path": "/a", "name": "v"}], [{"path": "/a", "storage_type": "instance", "name": "x"}], [{"name": "x"}], []],
    "_requires_fuse": [True],
    "foo": [1],
    "acelerators": ["V100"],
    "disk_sise": [1],
}
TASK = {
    "name": ["a", "a.b", "-a", "a b", "", "a--b", "a---b", "é", 5],
    "run": ["echo hi", "", None, ["a"], "echo $A", True],
    "setup": ["pip install x", None, 5],
    "num_nodes": [1, 2, 0, -1, 2.0, "2", 1.5, True],
    "workdir": [".", "./sub", "nope", {"url": "https://x/y", "ref": "main"}, {"url": "u", "foo": 1}, "a.txt", "${D}", "~"],
    "envs": [{"A": "x"}, {"A": 1, "B": True}, {"A": None}, {"A-B": 1}, {"A": 1.5, "D": "sub"}, {}, {"A": [1, {"b": None}]}, {"A": "$D", "1x": 2, "b c": 3}],
    "secrets": [{"S": "x"}, {"S": None}, ["secrets:A", "secrets:personal.B"], ["A"], {"secrets:A": None}, {"secrets:A": "x"}, {"S": 1, "T": None}, []],
    "managed_secrets": [["A", {"B": {"mount_path": "/b"}}], ["global.A"], [5], [{"A": {"x": 1}}], []],
    "file_mounts": [{"/a": "./a.txt"}, {"/a": "s3://b/c"}, {"/a": {"source": "s3://b", "mode": "COPY"}}, {"/a": {"name": "n", "store": "gcs"}}, {"/a/": "./sub"}, {"/a": "nope"}, {"/$A": "./${D}"},
                    {"/a": {"source": ["./a.txt"], "name": "n", "mode": "MOUNT_CACHED", "type": "dataset_ro"}}, {"/a": {"store": "volume", "name": "v", "config": {"disk_size": 5}}}, {"/a": 5},
                    {"/a": {"mode": "MOUNT", "config": {"mount_cached": {"transfers": 1}}}}, {"s3://x": "./a.txt"}, {"s3://x": {"name": "n"}}, {"~/sky_workdir": "./sub"}, {"~/sky_workdir": {"name": "n"}}, {"/a": {"type": "MODEL_CHECKPOINT_RO", "source": "s3://x"}}],
    "volumes": [{"/m": "v"}, {"/m": {"size": "10Gi"}}, {"/$A": "$A"}, {}, {"/m": None}],
    "config": [{"docker": {"run_options": "x"}}, {"hooks": [{"run": "a"}]}, {"hooks": []}, {"kubernetes": {"pod_config": {}, "foo": 1}}, {"foo": {"a": 1}}, {"gcp": {"vpc_name": None}}, {"aws": None}, {},
               {"kubernetes": {"kueue": {"x": 1}}}, {"hooks": [{"run": "a", "events": ["stop", "stop"]}]}, {"azure": {"vpc_name": 5}}, {"slurm": {"sbatch_options": {"a": [1]}}}, {"kubernetes": {"set_pod_resource_limits": 0.5}}],
    "inputs": [{"s3://a": 5}, {"a": 1, "b": 2}, {"a": "x"}, {}],
    "outputs": [{"gs://a": 1.5}],
    "service": [{"readiness_probe": "/"}, {"readiness_probe": {"path": "/x", "post_data": '{"a": 1}'}, "replicas": 2}, {"replica_policy": {"min_replicas": 2, "max_replicas": 1}}, {"replicas": 1, "workers": 1},
                {"readiness_probe": "x"}, {"ports": 0}, {"replica_policy": {"min_replicas": 1, "max_replicas": 3, "target_qps_per_replica": 2}}, {"pool": {"workers": 1}}, {"load_balancing_policy": "LEAST_LOAD"},
                {"replica_policy": {"min_replicas": 1, "max_replicas": 3}}, {"load_balancer": {"stream_timeout_seconds": 5}}, {"tls": {"keyfile": "a"}}],
    "pool": [{"workers": 2}, {"min_workers": 1, "max_workers": 3}, {"min_workers": 3}, {"max_workers": 2, "queue_length_threshold": 2}, {"min_workers": 3, "max_workers": 1}, {}, {"workers": 1, "upscale_delay_seconds": 5}],
    "event_callback": ["echo", 5],
    "api_server_access": [True, False, "no"],
    "rnu": ["x"],
    "resource": [{}],
}


def resources(rng: random.Random, depth: int = 0) -> dict:
    """A description of machines with a few fields, some of them odd."""
    out = {}
    for field in rng.sample(list(FIELDS), rng.choice([0, 1, 1, 2, 2, 3])):
        out[field] = rng.choice(SCALARS) if rng.random() < 0.06 else rng.choice(FIELDS[field])
    if depth == 0 and rng.random() < 0.2:
        out[rng.choice(["any_of", "ordered"])] = [resources(rng, 1) for _ in range(rng.randint(0, 3))]
        # SkyPilot's alternatives share these with one another, and what it makes of one of them shows in the next
        out.pop("labels", None)
        out.pop("volumes", None)
    return out


def task(rng: random.Random) -> dict:
    """A task with a few fields."""
    out = {}
    if rng.random() < 0.7:
        out["resources"] = resources(rng)
    for field in rng.sample(list(TASK), rng.choice([0, 1, 1, 2, 3])):
        out[field] = rng.choice(SCALARS) if rng.random() < 0.06 else rng.choice(TASK[field])
    out.setdefault("run", "echo hi")
    return out


def case(rng: random.Random) -> tuple[str, dict]:
    """The text of a file, and the options it is read with."""
    options: dict = {"files": {"a.txt": "x", "sub/a": "x"}}
    if rng.random() < 0.1:
        options["env"] = [["A", "cli"]]
    if rng.random() < 0.05:
        options["secret"] = [["S", "cli"]]
    documents = [task(rng)]
    if rng.random() < 0.1:
        header = {"name": rng.choice(["g", "a b", "p"])}
        if rng.random() < 0.7:
            header["execution"] = rng.choice(["parallel", "serial", "PARALLEL"])
        if rng.random() < 0.4:
            header["primary_tasks"] = rng.choice([["t0"], ["nope"], [], "t0", [5]])
        if rng.random() < 0.4:
            header["termination_delay"] = rng.choice(["30s", 5, "x", {"default": "1m"}, {"t0": 5}, {"nope": "1s"}, 1.5])
        if rng.random() < 0.3:
            header["inter_connection"] = rng.choice([True, False, "yes"])
        documents = [header] + [{**task(rng), **({"name": f"t{at}"} if rng.random() < 0.8 else {})} for at in range(rng.randint(1, 3))]
    flow = rng.choice([True, False, None])
    return yaml.safe_dump_all(documents, default_flow_style=flow, sort_keys=False, allow_unicode=True), options


GOLDEN = Path(__file__).resolve().parents[2] / "crates/sky/golden/task"
# what YAML 1.1 makes something of that one may not expect
ODD = [
    "no", "Yes", "on", "OFF", "y", "N", "~", "null", "", "010", "0x1F", "0b11", "0o10", "1_000", "1:30", "1:30.5", ".5", "1.", "1e3", "1.5e+3", ".inf", "-.INF", ".NaN", "+1", "-0", "0.0",
    "2024-01-02", "2024-01-02 03:04:05", "2024-01-02T03:04:05Z", "2001-12-14t21:59:43.10-05:00", "'5'", '"5"', "!!str 5", "!!int '5'", "!!float 5", "!!bool 'yes'", "!!null ''", "!foo x",
    "=", "<<", "[]", "{}", "[a, 1, ~]", "{a: 1, 2: b}", "&x a", "*x", '"\\x41\\u00e9"', "'it''s'", "a: b", "- a", "a #b", "a#b", "100000000000000000000000", "0.1", "12e03", "% 5", "@a", "`a`", "? a", "|", ">", "é",
    "2147483648", "-1", "1.0", "2.50", "True", "TRUE", "tRUE", "None", "'no'", "!!timestamp 2024-01-02", "[[1], {b: c}]",
]


@functools.cache
def recorded() -> list[tuple[str, dict]]:
    """The recorded files and the options that they are read with."""
    out = []
    for place in sorted(GOLDEN.iterdir()):
        options = place / "options.json"
        out.append(((place / "task.yaml").read_text(), json.loads(options.read_text()) if options.exists() else {}))
    return out


def nodes(value, at: tuple = ()) -> Iterator[tuple[tuple, object]]:
    """Every value in another one, with the way to it."""
    yield at, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from nodes(one, (*at, key))


@functools.cache
def by_field() -> dict[str, list]:
    """What the recordings have under a field of a name."""
    out: dict[str, list] = {}
    for text, _ in recorded():
        try:
            documents = list(yaml.safe_load_all(text))
        except (yaml.YAMLError, ValueError):
            continue
        for at, value in nodes(documents):
            if at and isinstance(at[-1], str):
                out.setdefault(at[-1], []).append(value)
    return out


def misspelt(rng: random.Random, word: str) -> str:
    """A word with a letter less, two letters exchanged, or in other letters."""
    at = rng.randrange(max(len(word), 1))
    return rng.choice([word[:at] + word[at + 1 :], word[:at] + word[at : at + 2][::-1] + word[at + 2 :], word.upper(), word + "s", word.replace("_", "-")])


def changed(rng: random.Random, documents: list) -> list:
    """The documents with one thing changed, put in, renamed or left out."""
    ways = [at for at, _ in nodes(documents) if at]
    if not ways:
        return documents
    *way, last = rng.choice(ways)
    parent = documents
    for step in way:
        parent = parent[step]
    value = parent[last]
    how = rng.choice(["other", "other", "other", "odd", "text", "wrapped", "gone", "misspelt", "more", "more", "task"])
    if how == "other":
        parent[last] = copy.deepcopy(rng.choice(by_field().get(last, SCALARS)))
    elif how == "odd":
        parent[last] = copy.deepcopy(rng.choice(SCALARS))
    elif how == "text":
        parent[last] = rng.choice([str(value), f"{value} ", f" {value}", f"{value}+", f"{value}x", f"-{value}", f"{value}.0", rng.choice(TEXTS)])
    elif how == "wrapped":
        parent[last] = rng.choice([[value], {"a": value}, [value, value], {str(value): None}])
    elif how == "gone":
        del parent[last]
    elif how == "misspelt" and isinstance(parent, dict) and isinstance(last, str):
        renamed = {misspelt(rng, key) if key == last else key: one for key, one in parent.items()}
        parent.clear()
        parent.update(renamed)
    elif how == "more" and isinstance(parent, dict):
        field = rng.choice(list(by_field()))
        parent[field] = copy.deepcopy(rng.choice(by_field()[field]))
    elif how == "task":
        try:
            others = [one for one in yaml.safe_load_all(rng.choice(recorded())[0]) if isinstance(one, dict)]
        except (yaml.YAMLError, ValueError):
            return documents
        mine = [one for one in documents if isinstance(one, dict)]
        if mine and others:
            task, other = rng.choice(mine), rng.choice(others)
            if isinstance(task.get("resources"), dict) and isinstance(other.get("resources"), dict):
                other["resources"] = {**task["resources"], **other["resources"]}
            task.update(other)
    return documents


def variant(rng: random.Random) -> tuple[str, dict]:
    """A recording with something changed: a value, or a word of its text."""
    text, options = rng.choice(recorded())
    options = {**options, "files": {"a.txt": "x", "sub/a": "x", **options.get("files", {})}}
    for key, pairs in [("env", [["A", "cli"], ["A", ""], ["B", "1"]]), ("secret", [["S", "cli"], ["A", "x"]])]:
        if rng.random() < 0.08:
            options[key] = [*options.get(key, []), rng.choice(pairs)]
    if rng.random() < 0.3:
        lines = text.splitlines()
        at = rng.randrange(len(lines) + 1)
        line = lines[at] if at < len(lines) else ""
        how = rng.random()
        if how < 0.6 and ":" in line:
            key, _, _ = line.rpartition(":")
            line = f"{key}: {rng.choice(ODD)}"
        elif how < 0.7:
            line = f"{line}\n{line}"
        elif how < 0.8:
            line = rng.choice([" " + line, line.lstrip(), "\t" + line, line + " ", line + ":", "---", "...", "--- a", "...\n%YAML 1.1\n---"])
        else:
            line = f"{line}\n{rng.choice(ODD)}: {rng.choice(ODD)}"
        return "\n".join([*lines[:at], line, *lines[at + 1 :]]) + "\n", options
    try:
        documents = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, ValueError):
        return text, options
    for _ in range(rng.choice([1, 1, 2, 3])):
        documents = changed(rng, copy.deepcopy(documents))
    return yaml.safe_dump_all(documents, default_flow_style=rng.choice([True, False, None]), sort_keys=False, allow_unicode=True), options


# without Shadeform, which calls itself `<Cloud>`
OTHERS = [
    "cudo", "do", "fluidstack", "hyperbolic", "ibm", "kubernetes", "mithril", "nebius", "oci", "paperspace", "primeintellect", "scp", "seeweb", "slurm", "ssh", "vast", "verda", "vsphere", "yotta",
]
# what not every cloud has
LACKED = [
    {"use_spot": True}, {"image_id": "docker:x"}, {"disk_tier": "low"}, {"disk_tier": "ultra"}, {"network_tier": "best"}, {"ports": 80}, {"local_disk": "nvme"}, {"labels": {"A b": "c"}},
    {"autostop": 5}, {"accelerators": "tpu-v3-8"}, {"accelerators": "V100"}, {"job_recovery": "none"}, {"cpus": "4", "memory": "0"},
]
# what a price list tells, and other clouds have none here
LISTED = [
    {"image_id": "ami-1"}, {"image_id": "skypilot:gpu-ubuntu-2004"}, {"region": "x"}, {"zone": "x"}, {"instance_type": "x"}, {"instance_type": "x", "memory": 4}, {"zone": "us-east-1a"},
    {"region": "us-east-1"}, {"instance_type": "m6i.2xlarge"}, {"instance_type": "n2-standard-8"},
]
WRONG = [*SCALARS, "x", "1", -2.5, "no", [{"a": 1}], {"a": None}, {1: 2}, 1e300, [[]], [None], " "]


def corners() -> list[dict]:
    """All fields with all kinds of values, and all clouds with all that one may lack."""
    fields = sorted({*FIELDS, "any_of", "ordered"})
    out: list[dict] = [{"resources": {field: value}, "run": "x"} for field in fields for value in WRONG]
    out += [{"run": "x", field: value} for field in [*TASK, "resources"] for value in WRONG]
    out += [{"resources": {"cloud": cloud, **lacked}, "run": "x"} for cloud in [*ENABLED, *OTHERS] for lacked in LACKED]
    out += [{"resources": {"cloud": cloud, **listed}, "run": "x"} for cloud in [*ENABLED, "kubernetes", "ssh"] for listed in LISTED]
    # fields in fields: of each recorded mapping below these, one value after the other
    for field in ["service", "pool", "config", "autostop", "job_recovery", "file_mounts", "volumes", "accelerator_args"]:
        seen = set()
        for value in by_field().get(field, []):
            for at, _ in nodes(value):
                way = tuple(str(step) for step in at)
                if not at or way in seen or len(at) > 3:
                    continue
                seen.add(way)
                for wrong in WRONG:
                    whole = {"it": copy.deepcopy(value)}
                    parent = whole["it"]
                    for step in at[:-1]:
                        parent = parent[step]
                    parent[at[-1]] = wrong
                    out.append({"run": "x", field: whole["it"]} if field in TASK else {"run": "x", "resources": {field: whole["it"]}})
    return out


ENABLED = ["aws", "gcp", "azure", "lambda", "runpod"]
# of the price lists of the recordings
PLACES = [
    "aws", "gcp", "azure", "lambda", "runpod", "aws/us-east-1", "aws/us-east-2", "aws/us-west-2", "aws/eu-west-1", "aws/us-east-1/us-east-1a", "gcp/us-central1",
    "gcp/europe-west4", "gcp/us-central1/us-central1-a", "azure/eastus", "azure/westeurope", "lambda/us-east-1", "runpod/CA", "*/us-east-1",
]
GPUS = ["V100", "V100:4", "V100:8", "A100", "A100:4", "A100:8", "A100-80GB", "A100-80GB:8", "T4", "T4:2", "T4:4", "L4", "L4:4", "A10G", "A10", "H100:8", "L40S", "K80"]
FITS = {
    "infra": PLACES,
    "cpus": [1, 2, 4, "4+", 8, "8+", 16, "16+", "32+", "64+", 3, "3+"],
    "memory": [4, 8, "8+", 16, "16+", "32+", "64+", "100+", "244+"],
    "use_spot": [True, True, False],
    "instance_type": ["m6i.2xlarge", "p3.2xlarge", "g5.12xlarge", "n2-standard-8", "Standard_D8s_v5", "gpu_1x_a10", "a2-highgpu-1g"],
    "disk_tier": ["low", "medium", "high", "best"],
    "disk_size": [100, 300],
    "max_hourly_cost": [0.1, 0.5, 1, 3, 10, 40],
    "ports": [8080],
    "local_disk": ["nvme:300+", "ssd", "nvme"],
    "network_tier": ["best"],
    "image_id": ["docker:ubuntu:22.04"],
}


def machine(rng: random.Random, depth: int = 0) -> dict:
    """A description of machines that some cloud may have."""
    fields = rng.sample(list(FITS), rng.choices([0, 1, 2, 3], [2, 5, 4, 1])[0])
    out = {field: rng.choice(FITS[field]) for field in fields}
    if rng.random() < 0.55:
        # few machines have these GPUs, and all these of everything else
        out = {field: value for field, value in out.items() if field in ("infra", "use_spot") or (field != "instance_type" and rng.random() < 0.2)}
        how = rng.random()
        if how < 0.7:
            out["accelerators"] = rng.choice(GPUS)
        elif how < 0.85:
            out["accelerators"] = {name: int(count or 1) for name, _, count in (gpu.partition(":") for gpu in rng.sample(GPUS, 2))}
        else:
            out["accelerators"] = rng.sample(GPUS, rng.randint(2, 3))
    if depth == 0 and rng.random() < 0.15:
        out = {rng.choice(["any_of", "ordered"]): [machine(rng, 1) for _ in range(rng.randint(1, 3))]}
    return out


def asked(resources: dict) -> list[str]:
    """The GPUs that a description names."""
    named = [asked(one) for key in ("any_of", "ordered") for one in resources.get(key, [])]
    gpus = resources.get("accelerators", [])
    return [gpu.partition(":")[0] for gpu in ([gpus] if isinstance(gpus, str) else gpus)] + [gpu for one in named for gpu in one]


def plan(rng: random.Random) -> tuple[str, dict]:
    """The text of a file for which machines are to be chosen, and what they are chosen among and by."""
    some = rng.sample(ENABLED, rng.choice([1, 2, 3, 4, 5, 5, 5, 5]))
    options: dict = {"clouds": [cloud for cloud in ENABLED if cloud in some]}
    options["minimize"] = rng.choice(["cost", "cost", "cost", "time"])
    names = ["a", "b", "c", "d"][: rng.choices([1, 2, 3, 4], [6, 3, 2, 1])[0]]
    documents = []
    for name in names:
        one: dict = {"name": name, "run": "x"}
        resources = machine(rng)
        if resources:
            one["resources"] = resources
        if rng.random() < 0.25:
            one["num_nodes"] = rng.choice([2, 4])
        if len(names) > 1 and rng.random() < 0.6:
            one["outputs"] = {"x": rng.choice([0.5, 10, 100, 1000, 5000, 20000])}
        if rng.random() < 0.15:
            one["inputs"] = {rng.choice(["s3://in", "gs://in"]): rng.choice([10, 1000, 20000])}
        documents.append(one)
    if rng.random() < 0.5:
        # of the GPUs that are asked for: SkyPilot takes these hours for the choice, and those of the machine's own GPUs for the time in all
        options["hours"] = {
            one["name"]: {"*": rng.choice([1, 5, 12]), **{gpu: rng.choice([0.5, 1, 2, 3, 10]) for gpu in asked(one.get("resources", {}))}} for one in documents
        }
    if rng.random() < 0.3:
        options["blocked"] = [
            rng.choice([{"infra": rng.choice(PLACES[:-1])}, {"infra": "aws", "instance_type": "p3.2xlarge"}, {"infra": "gcp", "use_spot": True}, {"accelerators": rng.choice(GPUS)}])
            for _ in range(rng.randint(1, 2))
        ]
    if len(documents) > 1:
        documents.insert(0, {"name": "p"})
    return yaml.safe_dump_all(documents, sort_keys=False), options


def group(rng: random.Random) -> tuple[str, dict]:
    """The text of a job group, and the clouds that may be used."""
    some = rng.sample(ENABLED, rng.choice([1, 1, 2, 2, 3, 5, 5]))
    header: dict = {"name": "g", "execution": "parallel"}
    if rng.random() < 0.5:
        header["inter_connection"] = rng.random() < 0.3
    names = ["a", "b", "c", "d"][: rng.choices([1, 2, 3, 4], [2, 4, 3, 1])[0]]
    documents = [header]
    for name in names:
        one: dict = {"name": name, "run": "x", "resources": machine(rng)}
        if rng.random() < 0.25:
            one["resources"] = {"infra": rng.choice([*PLACES, "k8s"])}
        if rng.random() < 0.25:
            one["num_nodes"] = rng.choice([2, 4])
        documents.append(one)
    return yaml.safe_dump_all(documents, sort_keys=False), {"clouds": [cloud for cloud in ENABLED if cloud in some]}


def main() -> None:
    seed, files, plans, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    for kind, count, made in [("task", files, case), ("optimizer", plans, plan)]:
        for at in range(count):
            place = folder / kind / f"s{seed}-{at:05}"
            place.mkdir(parents=True, exist_ok=True)
            rng = random.Random(f"{seed}/{at}")
            text, options = variant(rng) if kind == "task" and at % 2 else made(rng)
            (place / "task.yaml").write_text(text)
            (place / "options.json").write_text(json.dumps(options))
    groups = []
    for at in range(plans // 4):
        text, options = group(random.Random(f"{seed}/group/{at}"))
        groups.append({"name": f"s{seed}-{at:05}", "task.yaml": text, **options})
    if groups:
        (folder / "group-placement.json").write_text(json.dumps({"cases": groups}, indent=0))
    for at, task_of_corner in enumerate(corners() if files else []):
        place = folder / "task" / f"corner-{at:05}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "task.yaml").write_text(yaml.safe_dump(task_of_corner, sort_keys=False, allow_unicode=True))
        (place / "options.json").write_text(json.dumps({"files": {"a.txt": "x", "sub/a": "x"}}))


if __name__ == "__main__":
    main()
