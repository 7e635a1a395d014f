"""Managed jobs on SSH machines while agents, sshds, whole machines and the control plane are killed: `make soak`, or this program alone.

Each machine is an sshd in namespaces of its own (`sshd.py`). The jobs count steps, write a checkpoint into a folder that survives, and go on
from it. A seed decides what is killed and when. Killing the control plane, an agent or an sshd ends no job, so only the loss of a machine may
lead to a recovery. These promises are checked:

- All jobs succeed. Each recovery follows the loss of a machine of its attempt. Two attempts of one task never run at the same time.
- `sky jobs logs` shows each line once, and all lines that were written more than 2 s before their machine was lost.
- At the end nothing is left on the machines and in the control plane.
- From the evidence to the first line of the next attempt on the same machine, at most 2 s pass in the median.

Progress goes to stderr, one JSON object to stdout. The exit code is 1 if a promise did not hold. Options, by environment:

| Variable | Default | Meaning |
|---|---|---|
| `SOAK_JOBS_SECONDS` | 1200 | how long processes are killed; the jobs then end without kills |
| `SOAK_MACHINES`, `SOAK_JOBS` | 8, 20 | number of machines and of jobs |
| `SOAK_EVERY`, `SOAK_CONTROL_EVERY` | 30, 45 | seconds between two kills on machines, and of the control plane |
| `SOAK_POOL` | | if set, the machines are the workers of a pool, which are warm when a job comes |
| `SOAK_KEEP` | | copy the control plane's home into this folder if a promise did not hold |
| `SEED` | 1 | chooses what is killed, and when |
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import heapq
import itertools
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

E2E = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [path for path in (str(E2E), str(E2E / "sky")) if path not in sys.path]

from conftest import stop  # noqa: E402
from plateau import Api  # noqa: E402
from sshd import Host, Lan, can  # noqa: E402
from test_sky_ssh import Sky  # noqa: E402

AGENT, SSHD, CONTROL = "agent", "sshd", "control plane"
# ways to lose a machine: all processes are killed and its address stays; it is switched off; it returns with an empty disk
PROCESSES, POWER, EMPTY = "processes", "power", "disk"
LOSSES = (PROCESSES, POWER, EMPTY)
# of nine kills on machines
DECK = (AGENT,) * 3 + (SSHD,) * 3 + LOSSES
# grounds of attempts after which a job is not recovered: it ended, or its launch found no machine
NO_RECOVERY = ("None", "NoCapacity", "Refused", "Budget")
# seconds of output that may be lost with a machine, and of the promise about evidence and first line
SLACK, SOON = 2.0, 2.0
# how long states are waited for: jobs after the last kill, beyond their own work; other states
JOBS_WAIT, WAIT = 900, 120
PAUSE = 0.25
POOL = "warm"
LINE = re.compile(r"\bsoak (\d+) (\d+) (\d+\.\d{3})$", re.MULTILINE)
KINDS = "launches.sky.trainyard.dev,clusters.sky.trainyard.dev,machines.sky.trainyard.dev"

# Counts steps in the folder of its task, which outlives machines. `lines` is the truth about what was printed.
WORKER = """
import fcntl, json, os, pathlib, sys, time

folder = pathlib.Path(sys.argv[1]) / os.environ["SKYPILOT_TASK_ID"]
steps, pause = int(sys.argv[2]), float(sys.argv[3])
folder.mkdir(exist_ok=True)
# a pod has a host name of its own
address = os.environ["SKYPILOT_NODE_IPS"].split()[0]
note = lambda name, text: (folder / name).open("a").write(text + "\\n")
lock = (folder / "lock").open("a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("overlap", f"{time.time():.3f} on {address}: another attempt holds the lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
checkpoint = folder / "checkpoint"
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
number = os.environ["SKYPILOT_MANAGED_JOB_ID"]
note("runs", json.dumps({"job": int(number), "address": address, "at": time.time(), "from": step}))
run = len((folder / "runs").read_text().splitlines())
lines = (folder / "lines").open("a")
while step < steps:
    step += 1
    line = f"soak {run} {step} {time.time():.3f}"
    print(line, flush=True)
    lines.write(line + "\\n")
    lines.flush()
    if step % 20 == 0 or step == steps:
        (folder / "new").write_text(str(step))
        (folder / "new").rename(checkpoint)
    time.sleep(pause)
"""


@dataclasses.dataclass(frozen=True)
class Settings:
    seed: int = 1
    seconds: float = 1200
    machines: int = 8
    jobs: int = 20
    every: float = 30
    control_every: float = 45
    deck: tuple[str, ...] = DECK
    # seconds that a lost machine is away
    away: tuple[float, float] = (2, 10)
    # the machines are workers of a pool
    pool: bool = False
    # seconds that a job works; by default machines are busy for as long as processes are killed
    work: float | None = None
    keep: pathlib.Path | None = None

    @property
    def steps(self) -> int:
        work = self.work or self.seconds / math.ceil(self.jobs / self.machines)
        return math.ceil(work / PAUSE)


@dataclasses.dataclass(frozen=True)
class Kill:
    """A kill as it was planned: it hits the first of `machines` that runs a job then, else the first that is not away."""

    second: float
    what: str
    machines: tuple[int, ...] = ()
    away: float = 0.0


@dataclasses.dataclass
class Killed:
    """A kill as it happened; `until` is when the machine or the process was back."""

    what: str
    machine: str | None
    at: float
    until: float = math.inf


def plan(settings: Settings) -> list[Kill]:
    """All kills, by the seed alone. Kinds are dealt from shuffled decks, so that each of them gets its share."""
    chance = random.Random(settings.seed)
    kills: list[Kill] = []
    deck: list[str] = []
    for turn in range(1, int(settings.seconds / settings.every) + 1):
        second = turn * settings.every
        if not deck:
            deck = list(settings.deck)
            chance.shuffle(deck)
        what = deck.pop()
        away = chance.uniform(*settings.away) if what in LOSSES else chance.uniform(0.5, 5) if what == SSHD else 0.0
        kills.append(Kill(second, what, tuple(chance.sample(range(settings.machines), settings.machines)), away))
    kills += [Kill(turn * settings.control_every, CONTROL) for turn in range(1, int(settings.seconds / settings.control_every) + 1)]
    return sorted(kills, key=lambda kill: kill.second)


def until(what: str, look: Callable[[], object], timeout: float) -> object:
    """The first true value."""
    end = time.monotonic() + timeout
    while not (value := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout:.0f} s for {what}; last: {value!r}")
        time.sleep(0.2)
    return value


def seconds_of(stamp: str) -> float:
    return datetime.datetime.fromisoformat(stamp).timestamp() if stamp else math.inf


def figures(seconds: list[float]) -> dict | None:
    return {"median": round(statistics.median(seconds), 2), "max": max(seconds), "all": sorted(seconds)} if seconds else None


class Watcher(threading.Thread):
    """Notes attempts of the jobs and addresses of their clusters while they exist; a control plane that is away is asked again."""

    def __init__(self, kubeconfig: pathlib.Path):
        super().__init__(daemon=True)
        self.kubeconfig = kubeconfig
        self.api: Api | None = None
        self.over = threading.Event()
        self.jobs: dict[int, dict] = {}
        self.attempts: dict[int, dict[int, dict]] = collections.defaultdict(dict)
        self.addresses: dict[str, list[tuple[float, str]]] = collections.defaultdict(list)

    def run(self) -> None:
        while not self.over.wait(1):
            with contextlib.suppress(OSError, ValueError, KeyError):
                self.look()

    def items(self, kind: str) -> list[dict]:
        try:
            self.api = self.api or Api(self.kubeconfig)
            status, text = self.api.call(f"/apis/sky.trainyard.dev/v1alpha1/namespaces/default/{kind}")
        except Exception as error:
            self.api = None
            raise OSError(f"no answer about {kind}") from error
        if status != 200:
            raise OSError(f"{kind}: {status} {text}")
        return json.loads(text)["items"]

    def look(self) -> None:
        for job in self.items("managedjobs"):
            if job["spec"].get("replica"):
                continue  # a worker of a pool
            number = job["spec"]["id"]
            self.jobs[number] = job.get("status", {})
            for attempt in (self.jobs[number].get("tasks") or [{}])[0].get("attempts", []):
                self.attempts[number][attempt["number"]] = attempt
        now = time.time()
        for machine in self.items("machines"):
            known, address = self.addresses[machine["spec"]["cluster"]], machine.get("status", {}).get("address")
            if address and (not known or known[-1][1] != address):
                known.append((now, address))

    def state(self, number: int) -> str:
        return self.jobs.get(number, {}).get("state", "PENDING")

    def address(self, attempt: dict) -> str | None:
        """The address of the machine of an attempt."""
        ended = seconds_of(attempt.get("endedAt", ""))
        known = [address for at, address in self.addresses.get(attempt.get("cluster", ""), []) if at <= ended + SLACK]
        return known[-1] if known else None


@dataclasses.dataclass
class Task:
    """What a job left in its folder."""

    number: int
    runs: list[dict]
    # run, step, second
    lines: list[tuple[int, int, float]]
    overlap: str

    @classmethod
    def read(cls, folder: pathlib.Path, names: dict[str, str]) -> Task:
        """`names` are the machines by their addresses."""
        text = lambda name: (folder / name).read_text() if (folder / name).exists() else ""
        runs = [json.loads(line) for line in text("runs").splitlines()]
        for run in runs:
            run["machine"] = names[run["address"]]
        return cls(runs[0]["job"] if runs else 0, runs, printed(text("lines")), text("overlap"))


def printed(text: str) -> list[tuple[int, int, float]]:
    return [(int(run), int(step), float(second)) for run, step, second in LINE.findall(text)]


class Soak:
    """One run."""

    def __init__(self, settings: Settings, folder: pathlib.Path, log: Callable[[str], None]):
        self.settings, self.folder, self.log = settings, folder, log
        self.killed: list[Killed] = []
        self.broken: list[dict] = []
        self.begin = time.time()
        self.lan = Lan(folder)
        self.sky: Sky | None = None
        self.watcher: Watcher | None = None

    def end(self) -> None:
        """Ends all processes of this run."""
        if self.watcher is not None:
            self.watcher.over.set()
            self.watcher.join(120)
        try:
            if self.sky is not None:
                stop(self.sky)
                for pid in self.sky.connections():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        finally:
            self.lan.end()

    def says(self, text: str) -> None:
        self.log(f"{time.time() - self.begin:7.1f} s: {text}")

    def breaks(self, promise: str, what: str, job: int | None = None, at: float = math.inf, machine: str | None = None) -> None:
        """Records that a promise does not hold, with the latest kills before it and what `sky jobs explain` says."""
        before = [kill for kill in self.killed if kill.at <= at and kill.machine in (None, machine or kill.machine)]
        found = {"promise": promise, "what": what, "job": job, "machine": machine, "kills": [self.shown(kill) for kill in before[-4:]]}
        if job is not None:
            found["explain"] = self.sky.run("sky", "jobs", "explain", str(job), check=False).stdout
        self.broken.append(found)
        self.says(f"BROKEN: {promise}: {what}")

    def shown(self, kill: Killed) -> str:
        of = f" of {kill.machine}" if kill.machine else ""
        back = f", back after {kill.until - kill.at:.1f} s" if kill.until < math.inf else ""
        return f"{kill.at - self.begin:.1f} s: {kill.what}{of}{back}"

    def tasks(self) -> list[Task]:
        names = {host.address: host.name for host in self.lan.hosts}
        return [Task.read(folder, names) for folder in sorted(self.kept.iterdir())]

    def job(self, machine: str) -> int | None:
        """The job that runs on a machine."""
        on = [task.number for task in self.tasks() if task.runs and task.runs[-1]["machine"] == machine]
        return next((number for number in on if self.watcher.state(number) == "RUNNING"), None)

    def agent(self, host: Host) -> int:
        """The process of the agent of a machine, as the machine counts."""
        return int((host.home / f".trainyard-machine/{host.name}/node/agent.lock").read_text())

    def flows(self, machine: str) -> bool:
        """Whether the control plane has a line that is younger than the slack from the job that runs on this machine."""
        job = self.job(machine)
        return job is None or time.time() - max((second for _, _, second in self.said(job)), default=0.0) < SLACK

    def said(self, job: int) -> list[tuple[int, int, float]]:
        """What `sky jobs logs` shows."""
        return printed(self.sky.run("sky", "jobs", "logs", "--no-follow", str(job), check=False).stdout)

    def kill(self, kill: Kill) -> Callable[[], None] | None:
        """Carries out a kill; returns what brings the machine back, after `kill.away` seconds."""
        if not kill.machines:
            done = Killed(CONTROL, None, time.time())
            self.killed.append(done)
            self.sky.kill()
            self.sky.up()
            done.until = time.time()
            self.says(f"control plane killed, up again after {done.until - done.at:.1f} s")
            return None
        away = {before.machine for before in self.killed if before.until == math.inf}
        there = [host for number in kill.machines if (host := self.lan.hosts[number]).name not in away]
        if not there:
            self.says(f"no {kill.what} is killed: all machines are away")
            return None
        host = next((host for host in there if self.job(host.name) is not None), there[0])
        job = self.job(host.name)
        of = f"{host.name} (job {job})" if job is not None else f"{host.name} (no job)"
        what = kill.what
        if what == EMPTY:
            # lines that were not sent yet are lost with the disk: the promise is about machines that are connected
            try:
                until(f"output of {host.name}", lambda: self.flows(host.name), 20)
                time.sleep(SLACK + 1)  # what is shown now is not what the promise is about
            except TimeoutError as late:
                self.says(f"{of} keeps its disk: {late}")
                what = POWER
        done = Killed(what, host.name, time.time())
        self.killed.append(done)
        if what == AGENT:
            done.until = time.time()
            try:
                host.inside("kill", "-9", self.agent(host))
                self.says(f"agent of {of} killed")
            except (OSError, ValueError, subprocess.CalledProcessError):
                self.killed.remove(done)
                self.says(f"agent of {of} not killed: none runs")
            return None
        back: Callable[[], None]
        if what == SSHD:
            host.kill_sshd()
            back = host.start
        elif what == PROCESSES:
            host.order("stop")
            back = host.start
        else:
            host.halt()
            if what == EMPTY:
                shutil.rmtree(host.home / ".trainyard-machine", ignore_errors=True)
            back = host.boot
        self.says(f"{what} of {of} killed for {kill.away:.1f} s")

        def returns() -> None:
            back()
            done.until = time.time()
            self.says(f"{host.name} is back")

        return returns

    def ended(self) -> bool:
        return bool(self.numbers) and all(self.watcher.jobs.get(number, {}).get("tasks", [{}])[0].get("endedAt") for number in self.numbers)

    def kills(self) -> None:
        """Carries out the plan, and brings back the machines."""
        begin = time.monotonic()
        due: list[tuple[float, int, Kill | Callable[[], None]]] = []
        order = itertools.count()
        for kill in plan(self.settings):
            heapq.heappush(due, (kill.second, next(order), kill))
        while due:
            second, _, action = heapq.heappop(due)
            while (left := begin + second - time.monotonic()) > 0:
                time.sleep(min(left, 0.5))
            if not isinstance(action, Kill):
                action()
            elif not self.ended() and (back := self.kill(action)) is not None:
                heapq.heappush(due, (time.monotonic() - begin + action.away, next(order), back))

    def play(self) -> dict:
        settings = self.settings
        for kill in plan(settings):
            of = f" of the first of {kill.machines} that runs a job, for {kill.away:.1f} s" if kill.machines else ""
            self.log(f"planned at {kill.second:.0f} s: {kill.what}{of}")
        hosts = [self.lan.host() for _ in range(settings.machines)]
        self.lan.pools(self.lan.pool("lab", *hosts))
        self.kept = self.folder / "kept"
        self.kept.mkdir()
        self.kept.chmod(0o777)
        worker = self.folder / "worker.py"
        worker.write_text(WORKER)
        worker.chmod(0o644)
        self.sky = Sky(self.lan, self.folder / "yard")
        self.watcher = Watcher(pathlib.Path(self.sky.kubeconfig))
        self.watcher.start()
        task = self.folder / "task.yaml"
        run = f"exec python3 {worker} {self.kept} {settings.steps} {PAUSE}"
        task.write_text(f"name: soak\nresources: {{infra: ssh/lab}}\nrun: {run}\n")
        if settings.pool:
            pool = self.folder / "pool.yaml"
            pool.write_text(f"pool: {{workers: {settings.machines}}}\nresources: {{infra: ssh/lab}}\n")
            self.sky.sky("jobs", "pool", "apply", "-y", "-p", POOL, str(pool))
        on = ["-p", POOL] if settings.pool else []
        said = self.sky.sky("jobs", "launch", "-y", *on, "--num-jobs", str(settings.jobs), str(task))
        first, last = re.search(r"Managed Job IDs?: (\d+)(?:-(\d+))?", said).groups()
        self.numbers = range(int(first), int(last or first) + 1)
        begun = lambda: len([1 for folder in self.kept.iterdir() if (folder / "lines").exists()])
        until("the first jobs to print", lambda: begun() >= min(settings.jobs, settings.machines), JOBS_WAIT)
        self.says(f"{begun()} jobs run, of {settings.steps} steps each")
        self.kills()
        self.says("no more kills")
        try:
            until("all jobs to end", self.ended, JOBS_WAIT + settings.seconds)
        except TimeoutError:
            pass  # each that has not ended is named below
        self.took = time.time() - self.begin
        self.says("the jobs have ended")
        return self.judged()

    def judged(self) -> dict:
        with contextlib.suppress(OSError):
            self.watcher.look()
        tasks = {task.number: task for task in self.tasks()}
        succeeded = [number for number in self.numbers if self.watcher.state(number) == "SUCCEEDED"]
        for number in self.numbers:
            if number not in succeeded:
                self.breaks("all jobs succeed", f"job {number} is {self.watcher.state(number)}", number)
        recoveries, false, delays = [], [], []
        for number in self.numbers:
            found = self.recoveries(number, tasks.get(number))
            recoveries += found
            false += [one for one in found if one["loss"] is None]
            told = self.watcher.jobs.get(number, {}).get("recoveries", 0)
            if told != len(found):
                self.breaks("recoveries are told", f"the status of job {number} counts {told} recoveries, but {len(found)} of its attempts were recovered", number)
        for one in false:
            what = f"job {one['job']} recovered from attempt {one['attempt']} ({one['ground']}: {one['evidence']}), whose machine was not lost"
            self.breaks("no false recovery", what, one["job"], one["at"], one["machine"])
        delays = [one["delay"] for one in recoveries if one["delay"] is not None]
        if delays and statistics.median(delays) > SOON:
            worst = max((one for one in recoveries if one["delay"] is not None), key=lambda one: one["delay"])
            what = f"the median of {len(delays)} is {statistics.median(delays):.1f} s"
            self.breaks(f"{SOON:.0f} s from evidence to the first line", what, worst["job"], worst["at"], worst["machine"])
        lost = twice = 0
        for number, task in tasks.items():
            missing, more = self.output(task)
            lost, twice = lost + missing, twice + more
            if task.overlap:
                self.breaks("one attempt at a time", f"job {number}: {task.overlap.strip()}", number)
        if self.settings.pool:
            self.sky.sky("jobs", "pool", "down", "-y", POOL)
        left = self.leftovers() if len(succeeded) == len(self.numbers) else []
        for what in left:
            self.breaks("nothing is left", what)
        done = sum(len(task.lines) for task in tasks.values())
        useful = sum(max((step for _, step, _ in task.lines), default=0) for task in tasks.values())
        kills = collections.Counter(kill.what for kill in self.killed)
        return {
            "seed": self.settings.seed, "seconds": round(time.time() - self.begin), "machines": len(self.lan.hosts), "kills": dict(kills),
            "jobs": len(self.numbers), "succeeded": len(succeeded), "attempts": sum(len(of) for of in self.watcher.attempts.values()),
            "recoveries": recoveries, "falseRecoveries": len(false), "linesLost": lost, "linesTwice": twice, "leftovers": left,
            "goodput": round(useful / done, 4) if done else None,
            # useful seconds in all seconds of all machines, which also wait for jobs and for the control plane
            "machineUse": round(useful * PAUSE / (len(self.lan.hosts) * self.took), 4),
            # from the return of a machine to the evidence; from the evidence to the first line
            "noticed": figures([one["noticed"] for one in recoveries if one["noticed"] is not None]), "delays": figures(delays),
            "broken": self.broken,
        }  # fmt: skip

    def recoveries(self, number: int, task: Task | None) -> list[dict]:
        """The recoveries of a job, each with the loss that explains it and the seconds from the evidence to the next line."""
        names = {host.address: host.name for host in self.lan.hosts}
        attempts = self.watcher.attempts[number]
        found = []
        for at, attempt in sorted(attempts.items()):
            following = attempts.get(at + 1)
            if attempt.get("ground", "None") in NO_RECOVERY or following is None:
                continue
            ended = seconds_of(attempt["endedAt"])
            machine = names.get(self.watcher.address(attempt) or "")
            losses = [
                kill for kill in self.killed
                if kill.what in LOSSES and kill.machine == machine and seconds_of(attempt["beganAt"]) - 1 <= kill.at <= ended + 1
            ]  # fmt: skip
            run = next((run for run in (task.runs if task else []) if run["at"] > ended), None)
            is_warm = following["cluster"] == attempt["cluster"]
            # another kill in between may delay it
            calm = run is not None and not any(
                kill.machine in (None, machine) and kill.at < run["at"] and kill.until > ended - 1 and kill not in losses[-1:] for kill in self.killed
            )
            found.append({
                "job": number, "attempt": at, "machine": machine, "ground": attempt["ground"], "evidence": attempt["evidence"], "at": ended,
                "loss": self.shown(losses[-1]) if losses else None,
                "noticed": round(ended - losses[-1].until, 2) if losses else None,
                # until the next attempt runs; on a warm machine, and without other kills
                "next": round(run["at"] - ended, 2) if run else None, "delay": round(run["at"] - ended, 2) if run and is_warm and calm else None,
            })  # fmt: skip
        return found

    def output(self, task: Task) -> tuple[int, int]:
        """How many lines of a job are lost, and how many are there twice."""
        said = collections.Counter(self.said(task.number))
        missing: dict[int, list[tuple[int, int, float]]] = collections.defaultdict(list)
        for line in task.lines:
            machine = task.runs[line[0] - 1]["machine"]
            excused = any(kill.what in LOSSES and kill.machine == machine and -SLACK <= line[2] - kill.at <= SLACK for kill in self.killed)
            if line not in said and not excused:
                missing[line[0]].append(line)
        for run, lines in missing.items():
            first, last = min(lines, key=lambda line: line[2]), max(lines, key=lambda line: line[2])
            what = (
                f"job {task.number}, run {run}: {len(lines)} lines, steps {first[1]} to {last[1]}, {first[2] - self.begin:.1f} to {last[2] - self.begin:.1f} s"
            )
            self.breaks("no line is lost", what, task.number, last[2] + 60, task.runs[run - 1]["machine"])
        twice = [line for line, times in said.items() if times > 1]
        if twice:
            self.breaks("each line is shown once", f"job {task.number}: {len(twice)} lines, such as {twice[0]}", task.number, twice[0][2] + 60)
        return sum(map(len, missing.values())), len(twice)

    def left(self) -> list[str]:
        """What is on the machines and in the control plane now."""
        found = [f"control plane: {name}" for name in self.sky.kubectl("get", KINDS, "-o", "name").stdout.split()]
        for host in self.lan.hosts:
            found += [f"{host.name}: process {words}" for words in host.ours()]
            found += [f"{host.name}: {what}" for what in (*host.files()[:5], *host.mounted(), *host.listening())]
        found += [f"connection {pid}" for pid in self.sky.connections()]
        found += [f"record ssh/{path.name}" for path in (self.sky.home / "ssh").glob("*")]
        nodes = self.sky.get("nodes")["items"]
        found += [f"node {node['metadata']['name']}" for node in nodes if "sky.trainyard.dev/token" in node["metadata"]["labels"]]
        found += [f"pod {pod['metadata']['name']}" for pod in self.sky.get("pods")["items"]]
        # what clusters cost is recorded for a week
        unused = json.loads(self.sky.run("clean", "--older-than", "0s", "-o", "json").stdout)["items"]
        return found + [f"{item['kind']} {item['name']}" for item in unused if item["kind"] != "clusters"]

    def leftovers(self) -> list[str]:
        """What is still there when it had time to go."""
        found: list[str] = []

        def none() -> bool:
            try:
                found[:] = self.left()
            except FileNotFoundError:  # it goes while it is looked at
                return False
            return not found

        with contextlib.suppress(TimeoutError):
            until("nothing to be left", none, WAIT)
        return found


@contextlib.contextmanager
def soak(settings: Settings, log: Callable[[str], None]) -> Iterator[Soak]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    one = None
    try:
        one = Soak(settings, folder, log)
        yield one
    finally:
        try:
            if one is not None:
                one.end()
            if settings.keep is not None and (one is None or one.broken or sys.exc_info()[0] is not None):
                with contextlib.suppress(shutil.Error):  # sockets cannot be copied
                    shutil.copytree(folder, settings.keep, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns("h[0-9]*"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def play(settings: Settings, log: Callable[[str], None]) -> dict:
    """Plays a run and returns what it measured; `broken` lists the promises that do not hold."""
    with soak(settings, log) as one:
        return one.play()


def main() -> int:
    number = lambda name, otherwise: float(os.environ.get(name) or otherwise)
    settings = Settings(
        seed=int(number("SEED", 1)), seconds=number("SOAK_JOBS_SECONDS", 1200), machines=int(number("SOAK_MACHINES", 8)),
        jobs=int(number("SOAK_JOBS", 20)), every=number("SOAK_EVERY", 30), control_every=number("SOAK_CONTROL_EVERY", 45),
        pool=bool(os.environ.get("SOAK_POOL")), keep=pathlib.Path(os.environ["SOAK_KEEP"]) if os.environ.get("SOAK_KEEP") else None,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not can():
        print("root, sshd (make sshd), unshare, nsenter and ip are needed", file=sys.stderr)
        return 2
    found = play(settings, lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(found, indent=1))
    for one in found["broken"]:
        print(f"{one['promise']}: {one['what']}", file=sys.stderr)
    return int(bool(found["broken"]))


if __name__ == "__main__":
    sys.exit(main())
