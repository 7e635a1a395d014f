"""Measures whether a control plane still grows after hours of short jobs: `make plateau [SECONDS=7200 RATE=70]`.

Starts `trainyard up` in a home of its own and creates jobs through the API at a steady rate. They end at once. TrainJobs are deleted by
`delete --finished --older-than 5m`; every seventh job is a Job that its `ttlSecondsAfterFinished` removes. 70 jobs a minute are 100,000
a day. Every 30 s the program records the memory of the control plane, the size of its database, the size of each folder of the home and
the number of objects of each kind.

At the end it prints a row for every ten minutes. In the last third of the time, each measure may grow per hour by at most its bound.
Growth is the median of the slopes between all pairs of samples, so that a saw tooth counts as level. The bounds:

- memory: 10 MiB, that is 240 MiB a day.
- the database and each folder: 5 % of what it holds at the end, at least 4 MiB. Data that is kept for an hour no longer grows by then.
- objects of a kind: 5 % of their number at the end, at least 20.

Events are kept for an hour, so they still grow in the last third of a run below 5400 s. Use shorter runs only to test this program.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = pathlib.Path(os.environ.get("TRAINYARD_BIN", ROOT / "target/debug/trainyard"))
MIB = 1 << 20
MEMORY, DATABASE, OBJECTS = "memory", "database", "objects "
LOOK_SECONDS, ROW_SECONDS, SWEEP_SECONDS = 30, 600, 60
TTL_SECONDS, OLDER_THAN = 120, "5m"
RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "short", "labels": {"trainer.kubeflow.org/framework": "plain"}},
    "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "node", "image": "none"}]}}}}}]}}},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Sample:
    """All measures at one moment: bytes, or numbers of objects."""

    second: float
    values: dict[str, int]


class Api:
    """The control plane's API, with what its kubeconfig says."""

    def __init__(self, kubeconfig: pathlib.Path):
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        self.address = cluster["server"].removeprefix("https://")
        self.headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}

    def call(self, path: str, body: dict | None = None) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(self.address, context=self.tls, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET" if body is None else "POST", path, body and json.dumps(body), self.headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def create(self, path: str, body: dict) -> None:
        status, text = self.call(path, body)
        if status != 201:
            raise RuntimeError(f"POST {path}: {status} {text}")


def create_job(api: Api, number: int) -> None:
    """A job that ends at once. What it prints goes through all that handles logs."""
    command = ["sh", "-c", f"echo job {number}; echo loss=0.{number % 10}"]
    if number % 7 == 0:
        pod = {"restartPolicy": "Never", "containers": [{"name": "one", "image": "none", "command": command}]}
        spec = {"ttlSecondsAfterFinished": TTL_SECONDS, "template": {"spec": pod}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"short-{number}"}, "spec": spec}
        return api.create("/apis/batch/v1/namespaces/default/jobs", job)
    spec = {"runtimeRef": {"name": "short"}, "trainer": {"command": command}}
    job = {"apiVersion": RUNTIME["apiVersion"], "kind": "TrainJob", "metadata": {"name": f"train-{number}"}, "spec": spec}
    return api.create("/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs", job)


def resident(pid: int) -> int:
    """Memory of a process. Pages that it shares with others count by its share."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)[1]) * 1024


def size(path: pathlib.Path) -> int:
    """What a file or a folder takes on the disk. What is removed meanwhile counts as nothing."""
    with contextlib.suppress(OSError):
        total = path.lstat().st_blocks * 512
        if path.is_dir() and not path.is_symlink():
            total += sum(size(entry) for entry in path.iterdir())
        return total
    return 0


def look(home: pathlib.Path, api: Api, pid: int, begin: float) -> Sample:
    values = {MEMORY: resident(pid), DATABASE: 0, "other files": 0}
    for entry in home.iterdir():
        kind = DATABASE if entry.name.startswith("store.db") else f"{entry.name}/" if entry.is_dir() else "other files"
        values[kind] = values.get(kind, 0) + size(entry)
    _, metrics = api.call("/metrics")
    for resource, count in re.findall(r'^apiserver_storage_objects\{resource="([^"]+)"\} (\d+)', metrics, re.MULTILINE):
        values[f"{OBJECTS}{resource}"] = int(count)
    return Sample(time.monotonic() - begin, values)


def slope(samples: list[Sample], name: str) -> float:
    """By how much a measure grows in an hour."""
    points = [(sample.second, sample.values.get(name, 0)) for sample in samples]
    slopes = [(b - a) / (t - s) for i, (s, a) in enumerate(points) for t, b in points[i + 1 :] if t > s]
    return statistics.median(slopes) * 3600 if slopes else 0.0


def bound(name: str, last: int) -> float:
    if name == MEMORY:
        return 10 * MIB
    return max(last / 20, 20 if name.startswith(OBJECTS) else 4 * MIB)


def judge(samples: list[Sample]) -> list[dict[str, object]]:
    """Each measure with its slope in the last third, and whether that is within its bound."""
    third = [sample for sample in samples if sample.second >= samples[-1].second * 2 / 3]
    names = sorted({name for sample in samples for name in sample.values})
    verdicts = []
    for name in names:
        last = third[-1].values.get(name, 0)
        grows, most = slope(third, name), bound(name, last)
        verdicts.append({"measure": name, "last": last, "perHour": round(grows), "bound": round(most), "level": grows <= most})
    return verdicts


def shown(name: str, value: float) -> str:
    return f"{value:.0f}" if name.startswith(OBJECTS) else f"{value / MIB:.1f} MiB"


def table(samples: list[Sample], verdicts: list[dict[str, object]]) -> str:
    """A row for every ten minutes; of the kinds of objects, those that change."""
    changes = lambda name: len({sample.values.get(name, 0) for sample in samples}) > 1
    names = [str(v["measure"]) for v in verdicts if not str(v["measure"]).startswith(OBJECTS) or changes(str(v["measure"]))]
    due = range(0, int(samples[-1].second) + 1, ROW_SECONDS)
    rows = [min(samples, key=lambda sample, at=at: abs(sample.second - at)) for at in due]
    rows += [samples[-1]] if rows[-1] is not samples[-1] else []
    lines = [["minute", *(name.removeprefix(OBJECTS) for name in names)]]
    lines += [[f"{row.second / 60:.0f}", *(shown(name, row.values.get(name, 0)) for name in names)] for row in rows]
    of = {verdict["measure"]: verdict for verdict in verdicts}
    for title, key in (("per hour", "perHour"), ("bound", "bound")):
        lines.append([title, *(shown(name, of[name][key]) for name in names)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def run(arguments: argparse.Namespace, home: pathlib.Path, log: Callable[[str], None]) -> tuple[list[Sample], int]:
    """Plays the jobs; all samples, and how many jobs were created."""
    env = {**os.environ, "TRAINYARD_HOME": str(home)}
    env.pop("KUBECONFIG", None)
    done = subprocess.run([BINARY, "up", "--detach", "-o", "json"], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    pid = json.loads(done.stdout)["pid"]
    sweep: subprocess.Popen | None = None
    samples: list[Sample] = []
    number = 0
    try:
        api = Api(home / "kubeconfig")
        api.create("/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes", RUNTIME)
        begin = time.monotonic()
        looked, swept = -float(LOOK_SECONDS), 0.0
        while (now := time.monotonic() - begin) < arguments.seconds:
            if now - looked >= LOOK_SECONDS:
                samples.append(look(home, api, pid, begin))
                looked = now
                held = {name: value for name, value in samples[-1].values.items() if value}
                log(f"{now:.0f} s, {number} jobs: {json.dumps(held)}")
            if now - swept >= SWEEP_SECONDS and (sweep is None or sweep.poll() is not None):
                words = ["delete", "--finished", "--older-than", OLDER_THAN, "--yes", "--no-wait"]
                sweep = subprocess.Popen([BINARY, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                swept = now
            if number < now * arguments.rate / 60:
                create_job(api, number)
                number += 1
            else:
                time.sleep(min(60 / arguments.rate / 4, 0.25))
        samples.append(look(home, api, pid, begin))
    finally:
        if sweep is not None:
            sweep.wait(120)
        subprocess.run([BINARY, "down"], env=env, capture_output=True)
    return samples, number


@contextlib.contextmanager
def folder(wanted: pathlib.Path | None) -> Iterator[pathlib.Path]:
    """The home: the one that was named, else one that is removed at the end."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted.resolve()
        return
    made = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-plateau-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run short jobs for hours, and report which parts of the control plane still grow.")
    parser.add_argument("--seconds", type=float, default=7200, help="how long [default: 7200]")
    parser.add_argument("--rate", type=float, default=70, help="jobs in a minute [default: 70]")
    parser.add_argument("--home", type=pathlib.Path, help="keep the home in this folder [default: a new one, removed at the end]")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="output format [default: table]")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with folder(arguments.home) as home:
        samples, jobs = run(arguments, home, lambda line: print(line, file=sys.stderr, flush=True))
    verdicts = judge(samples)
    grown = [verdict for verdict in verdicts if not verdict["level"]]
    if arguments.output == "json":
        rows = [{"second": round(sample.second), **sample.values} for sample in samples]
        print(json.dumps({"jobs": jobs, "seconds": arguments.seconds, "measures": verdicts, "samples": rows}, indent=1))
    else:
        print(table(samples, verdicts))
        print(f"{jobs} jobs in {samples[-1].second / 60:.0f} minutes")
    for verdict in grown:
        name = str(verdict["measure"])
        grows, most = (shown(name, float(str(verdict[key]))) for key in ("perHour", "bound"))
        print(f"{name} still grows: {grows} per hour in the last third of the run; the bound is {most} per hour", file=sys.stderr)
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())
