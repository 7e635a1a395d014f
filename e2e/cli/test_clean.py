"""`trainyard clean`: what is listed, what is removed and what is kept, with and without a control plane."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import time

from conftest import Screen, Yard, plain_runtime, wait_for, write

WEEK = 8 * 86400


def old(path: pathlib.Path, text: str = "x") -> pathlib.Path:
    """A file that was last changed eight days ago."""
    write(path, text)
    then = time.time() - WEEK
    for one in (path, path.parent):
        os.utime(one, (then, then))
    return path


def listed(yard: Yard, *words: str) -> set[str]:
    items = json.loads(yard.run("clean", "-o", "json", *words).stdout)["items"]
    return {f"{item['kind']}/{item['name']}" for item in items}


def test_what_is_old_is_shown_and_removed_and_nothing_else(yard: Yard, tmp_path: pathlib.Path) -> None:
    yard.env = {**yard.env, "HOME": str(tmp_path / "user"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("plain")))
    write(tmp_path / "job.sh", "echo kept\n", 0o755)
    yard.run("run", "--runtime", "plain", "--name", "kept", "job.sh", cwd=tmp_path)
    kept = lambda: [path for path in (yard.home / "history/jobs").glob("*/job.json") if "kept" in path.read_text()]
    [page] = wait_for("the job's page", kept)
    python = old(tmp_path / "cache/trainyard/python-1.json")
    mine = old(tmp_path / "cache/trainyard/notes")
    socket = old(yard.home / "ssh/c7ffffff0.1")
    gone = old(yard.home / "history/jobs/gone/job.json", '{"namespace": "default", "name": "gone", "jobsets": {}}')
    before = old(yard.home / "store.db.before-restore")
    os.utime(page.parent, (time.time() - WEEK,) * 2)
    of_files = {"python/python-1.json", "ssh/c7ffffff0.1", "database/store.db.before-restore"}
    assert listed(yard) == {*of_files, "logs/default/gone"}
    assert listed(yard, "--older-than", "9d") == set()

    # without an answer nothing goes; the table has a row for each kind
    shown = yard.run("clean", stdin=-3)
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["KIND", "python", "logs", "database", "ssh"]
    assert "nothing was removed" in shown.stderr and python.exists()
    ours, theirs = pty.openpty()
    asked = yard.spawn_in(theirs, "clean")
    screen = Screen(ours)
    wait_for("the question", lambda: screen.says(b"Proceed?"))
    os.write(ours, b"n\n")
    wait_for("the answer", lambda: screen.says(b"nothing was removed"))
    assert asked.wait(30) == 0 and python.exists()

    # without a control plane nobody knows which jobs are gone
    yard.down()
    left = yard.run("clean", "-o", "json")
    assert {f"{item['kind']}/{item['name']}" for item in json.loads(left.stdout)["items"]} == of_files
    assert "not listed: no control plane runs" in left.stderr
    assert "removed 3" in yard.run("clean", "--yes").stdout
    assert not any(path.exists() for path in (python, socket, before)) and mine.exists() and gone.exists()
    yard.up()
    assert page.exists() and "kept" in yard.run("logs", "kept").stdout
    assert listed(yard) <= {"logs/default/gone"}, "the control plane may have removed it itself"
