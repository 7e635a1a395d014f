"""Writes what SkyPilot's `launch` and `exec` make of random options over random task files: `launches.py SEED COUNT DIR` makes
DIR/launches.json, a list of `args`, `files` (by name) and either `task` (its normalised configuration, as it would be sent) or `error` (class and
message), or `usage` (what is printed before it exits with 2), or `aborted`; with `told`, what is printed before.

Nothing is sent: the command ends where it would be. Left out is what is refused here on purpose (`--priority`, `--config`, repositories).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import re
import sys
import tempfile
from pathlib import Path

SEED, COUNT, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).resolve()
sys.argv = [sys.argv[0], str(FOLDER)]  # as record.py is called
sys.path.insert(0, str(Path(__file__).parent))

import generate  # noqa: E402
import record  # noqa: E402
import yaml  # noqa: E402

with contextlib.redirect_stdout(sys.stderr):
    import click
    import click.testing
    from sky import task as sky_task
    from sky.client.cli import command

FILES = {"a.txt": "x", "sub/a": "x", "f.env": "A=file\nB='two words'\nexport C=\"x\"\n# D=no\nF=a#b\n", "s.env": "S=secret\nA=other\n"}
VALUES = {
    "--name": ["n", "a b", "", "none"],
    "--workdir": ["sub", ".", "sub", "nope", "a.txt"],
    "--infra": [*generate.INFRA, "none", "", "aws/*", "nimbus", "aws/us-east-1/us-east-1a/x"],
    "--cloud": ["aws", "GCP", "none", "*", "nimbus", "k8s"],
    "--region": ["us-east-1", "none", "*", "us-central1"],
    "--zone": ["us-east-1a", "None", "*"],
    "--num-nodes": ["2", "1", "0", "-1", "1_0"],
    "--cpus": ["4", "8+", "none", "x", "0", "0.5", ""],
    "--memory": ["16", "32+", "None", "16GB", "x", "-4"],
    "--disk-size": ["100", "0", "-5", "256", "9"],
    "--disk-tier": ["low", "BEST", "none", "ultra"],
    "--network-tier": ["best", "Standard"],
    "--image-id": ["docker:ubuntu:22.04", "ami-1", "none", "skypilot:gpu-ubuntu-2004", "skypilot:nope"],
    "--local-disk": ["nvme:300+", "ssd", "none", "hdd"],
    "--gpus": ["V100:4", "A100", "none", "v100:0.5", "80GB+", "X:1:2", "T4:x", "{V100: 1}", "{V100: 1, T4: 2}", "[V100, T4]", "tpu-v3-8", "A100-80", ""],
    "--instance-type": ["m6i.2xlarge", "p3.2xlarge", "none", "x9.huge", "n2-standard-8"],
    "--ports": ["8080", "80-90", "none", "80,81", "x", "70000", "NONE"],
    "--env": ["A=cli", "B", "SET", "A=", "A=x=y", "1x=2", "=x", "D=sub"],
    "--secret": ["S=cli", "SET", "T", "A=s", "S="],
    "--env-file": ["f.env", "f.env", "f.env", "nope.env"],
    "--secret-file": ["s.env", "s.env", "f.env", "sub"],
}
FLAGS = ["--use-spot", "--no-use-spot"]


class Sent(Exception):
    """Where a task would be sent."""

    def __init__(self, task) -> None:
        self.task = task


def send(task, *_, **__) -> None:
    raise Sent(task)


def line(rng: random.Random) -> tuple[list[str], str]:
    """A command line, and a task file."""
    kind = rng.random()
    if kind < 0.5:
        config: dict = {"run": "echo hi"}
        if resources := generate.machine(rng):
            config["resources"] = resources
        for field in rng.sample(["name", "num_nodes", "workdir", "envs", "secrets", "setup"], rng.choice([0, 0, 1, 2])):
            config[field] = rng.choice([{"A": "x"}, {"A": None}, {"A": 1, "B": "y"}] if field == "envs" else [{"S": None}, {"S": "x"}] if field == "secrets" else generate.TASK[field][:2])
        text = yaml.safe_dump(config, sort_keys=False)
    else:
        text = yaml.safe_dump(generate.task(rng), sort_keys=False, allow_unicode=True) if kind < 0.9 else generate.case(rng)[0]
    odd = rng.random()
    if odd < 0.03:
        text += f"{rng.choice(['run', 'name', 'zone'])}: twice\nrun: twice\n" if not text.startswith("{") and "---" not in text else ""
    elif odd < 0.05:
        text = rng.choice(["", "# nothing\n", "---\n", "{}\n", "---\n---\n", "null\n", "name:\n"])
    elif odd < 0.1:
        text += "---\n" + rng.choice(["name: b\nrun: y\n", "{}\n", "name: b\nname: c\n", "", "resources: {cpus: 2}\n"])
    elif odd < 0.12:
        text = "name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: y\n"
    name = rng.choice(["t.yaml"] * 8 + ["t.yml", "t.txt", "run.sh", "t.YAML"])
    entry = rng.choice([[name]] * 9 + [["echo", "hi"], ["python train.py --x '1'"], ["nope.yaml"], ["nope.yml"], ["echo x.yaml"], [], ["sub"], ["."], ["a.txt"]])
    words = []
    for option in rng.sample(list(VALUES), rng.choice([1, 1, 2, 3])):
        for _ in range(2 if option in ("--env", "--secret", "--ports") and rng.random() < 0.4 else 1):
            words.append(f"{option}={rng.choice(VALUES[option])}")
    if rng.random() < 0.15:
        words.append(rng.choice(FLAGS))
    rng.shuffle(words)
    verb = ["launch", "-y", "--dryrun"] if rng.random() < 0.8 else ["exec", "dev"]
    return [*verb, *words, *entry], text


def outcome(args: list[str]) -> dict:
    """What becomes of a command line."""
    result = click.testing.CliRunner(mix_stderr=False).invoke(command.cli, args, input="", prog_name="sky")
    plain = lambda text: re.sub(r"\x1b\[[0-9;]*m", "", text)
    told = {"told": re.sub("Submitting job to cluster: .*\n", "", plain(result.stdout))}
    error = result.exception
    if isinstance(error, Sent):
        try:
            return {**told, "task": record.written(error.task)}
        except BaseException as inner:
            return {**told, "error": record.told(inner)}
    if isinstance(error, SystemExit) or error is None:
        shown = plain(result.stderr)
        return {**told, "aborted": True} if "Aborted!" in shown else {**told, "usage": shown}
    return {**told, "error": record.told(error)}


def main() -> None:
    logging.disable(logging.CRITICAL)
    command.sdk.launch = command.sdk.exec = send
    command.usage_lib.entrypoint = lambda one: one
    sky_task.Task.update_envs_and_secrets_from_workdir = lambda self: self  # it asks the network
    os.environ.update(COLUMNS="200", SET="here")
    for name in ("A", "B", "T", "IS_SKYPILOT_SERVER"):
        os.environ.pop(name, None)
    out = []
    for at in range(COUNT):
        args, text = line(random.Random(f"{SEED}/launch/{at}"))
        files = {**FILES, **{word: text for word in args if re.fullmatch(r"t\.\w+|run\.sh", word)}}
        with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(sys.stderr):
            os.chdir(place)
            for name, content in files.items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_text(content)
            one = {"args": args, "files": files, **outcome(args)}
            os.chdir("/")
        out.append(json.loads(json.dumps(one, default=str).replace(place, "<cwd>")))
    (FOLDER / "launches.json").write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
