"""kill -9 at every call with which backup, restore and the migration of a database change a file.

A layer between the process and the disk (`faults/killed.c`) sends the signal. `SEED` says how chance begins.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator

import pytest

from conftest import BINARY, ROOT, Yard, stop
from test_durability import old_home

LAYER = ROOT / "e2e/faults" / "killed.c"
SEED = os.environ.get("SEED", "1")
# No command that is tried here changes files more often.
CALLS_MAX = 2000


class Killer:
    def __init__(self, folder: pathlib.Path, outside: pathlib.Path):
        library = outside / "killed.so"
        subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, LAYER, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "READONLY_BELOW": str(folder), "READONLY_WHILE": "/"}

    def run(self, at: int, home: pathlib.Path, *words: str) -> int:
        """The exit status of a command that is killed at its change number `at`: -9 if it makes so many."""
        env = {**os.environ, **self.environment, "TRAINYARD_HOME": str(home), "KILLED_AT": str(at)}
        env.pop("KUBECONFIG", None)
        done = subprocess.run([BINARY, *words], env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    yield folder


@pytest.fixture
def killer(disk: pathlib.Path, tmp_path: pathlib.Path) -> Killer:
    return Killer(disk, tmp_path)


def config_maps(database: pathlib.Path) -> set[str]:
    """The ConfigMaps of a database and its log, read from copies of both."""
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("", "-wal"):
            if (part := database.with_name(database.name + suffix)).exists():
                shutil.copy(part, pathlib.Path(folder) / f"copy{suffix}")
        connection = sqlite3.connect(pathlib.Path(folder) / "copy")
        try:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return {name for (name,) in connection.execute("SELECT name FROM objects WHERE bucket LIKE '%configmaps' AND namespace = 'default'")}
        finally:
            connection.close()


def prepared(disk: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A home that holds the ConfigMaps `early` and `late`, and a backup of it that holds `early` alone."""
    home, file = disk / "prepared", disk / "yard.backup"
    yard = Yard(home, "--no-node", "--controllers", "none")
    try:
        yard.kubectl("create", "configmap", "early")
        yard.run("backup", str(file))
        yard.kubectl("create", "configmap", "late")
        # killed, it leaves a log beside the database, with writes that are nowhere else
        yard.kill()
    finally:
        stop(yard)
    assert (home / "store.db-wal").stat().st_size > 0
    return home, file


def again(home: pathlib.Path, original: pathlib.Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(original, home, symlinks=True)


@pytest.mark.timeout(900)
def test_a_restore_that_is_killed_and_repeated_keeps_the_old_database(disk: pathlib.Path, killer: Killer):
    rng, home = random.Random(SEED), disk / "home"
    original, file = prepared(disk)
    whole, kept, unfinished = home / "store.db", home / "store.db.before-restore", home / "restore-unfinished"
    restore = ["restore", str(file), "--force"]
    for at in range(1, CALLS_MAX):
        again(home, original)
        done = killer.run(at, home, *restore) == 0
        assert not done or at > 30, "a restore changes more files"
        # killed again and again while it is under way
        while unfinished.exists() and rng.random() < 0.5:
            killer.run(rng.randrange(1, 80), home, *restore)
        if unfinished.exists() or "late" in config_maps(whole):
            assert killer.run(0, home, *restore) == 0
        assert config_maps(whole) == {"early"}, at
        assert config_maps(kept) == {"early", "late"}, f"killed at change {at}, the old database is lost"
        assert not unfinished.exists()
        if done:
            return
    pytest.fail("a restore never ends")


@pytest.mark.timeout(900)
def test_a_backup_that_is_killed_leaves_the_one_that_was_there(disk: pathlib.Path, killer: Killer):
    home = disk / "home"
    original, file = prepared(disk)
    before = file.read_bytes()
    for at in range(1, CALLS_MAX):
        again(home, original)
        file.write_bytes(before)
        fresh = file.with_name("fresh.backup")
        killer.run(at, home, "backup", str(fresh))
        if fresh.exists():
            # it has its name, so it is whole
            with tarfile.open(fresh) as archive:
                assert "store.db" in archive.getnames(), at
            fresh.unlink()
        assert {path.name for path in disk.iterdir()} <= {"home", "prepared", "packed.db", file.name}, at
        again(home, original)
        done = killer.run(at, home, "backup", str(file), "--force") == 0
        for left in disk.glob(".trainyard-backup.*"):
            left.unlink()
        with tarfile.open(file) as archive:
            (disk / "packed.db").write_bytes(archive.extractfile("store.db").read())
        holds = config_maps(disk / "packed.db")
        assert "early" in holds and ("late" in holds or file.read_bytes() == before), at
        assert {"early", "late"} <= config_maps(home / "store.db"), at
        if done:
            assert "late" in holds and at > 10
            return
    pytest.fail("a backup never ends")


@pytest.mark.timeout(900)
def test_a_migration_that_is_killed_is_done_by_the_next_start(disk: pathlib.Path, killer: Killer):
    original, home = old_home(disk / "original"), disk / "home"
    flags = ["--no-node", "--controllers", "none", "--listen", "127.0.0.1:0"]
    rng = random.Random(SEED)
    # the first changes are those of the migration; later ones are the server's
    for at in [*range(1, 40), *sorted(rng.sample(range(40, 120), 6))]:
        again(home, original)
        env = {**os.environ, **killer.environment, "TRAINYARD_HOME": str(home), "KILLED_AT": str(at)}
        process = subprocess.Popen([BINARY, "up", *flags], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert process.wait(60) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            # it has started without so many changes
            process.kill()
            process.wait(60)
        assert "kept" in config_maps(home / "store.db"), f"killed at change {at}"
    yard = Yard(home, *flags)
    try:
        assert json.loads(yard.kubectl("get", "configmap", "kept", "-o", "json").stdout)["data"] == {"a": "b"}
    finally:
        stop(yard)
