"""Machines that are not the developer's: no home, folders that cannot be written, blanks in every name, the system's Python alone."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from conftest import BINARY

SYSTEM = "/usr/bin:/bin"
# the id of a user that no machine has
NOBODY = 54321
SHOW = "import os, sys\nprint(sys.argv[1:], os.getcwd())\n"


class Somebody:
    """A user without an account, and folders with blanks in their names."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.program = folder / "trainyard"
        shutil.copy2(BINARY, self.program)
        self.home = folder / "my home"
        self.home.mkdir()
        os.chown(self.home, NOBODY, NOBODY)
        self.work = folder / "my work"
        self.work.mkdir()
        (self.work / "my script.py").write_text(SHOW)

    def run(self, *words: object, cwd: pathlib.Path | None = None, **env: str) -> subprocess.CompletedProcess:
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", self.program, *words]
        return subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, timeout=120, cwd=cwd or self.work, env={"PATH": SYSTEM, **env}
        )


@pytest.fixture(scope="module")
def somebody() -> Iterator[Somebody]:
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root runs something as somebody else")
    if not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("there is no /usr/bin/python3")
    # pytest's own folders are closed to others
    with tempfile.TemporaryDirectory(prefix="somebody's ") as folder:
        os.chmod(folder, 0o755)
        made = Somebody(pathlib.Path(folder))
        yield made
        made.run("down", HOME=str(made.home))


def test_without_a_home_it_says_what_to_set(somebody: Somebody):
    for words in [("up", "--detach"), ("get",), ("run", "my script.py")]:
        done = somebody.run(*words)
        assert done.returncode == 2 and "TRAINYARD_HOME" in done.stderr and "--home DIR" in done.stderr, done
        assert str(NOBODY) in done.stderr


def test_without_a_home_but_with_one_of_its_own_it_works(somebody: Somebody):
    own = {"TRAINYARD_HOME": str(somebody.home / "own data")}
    try:
        done = somebody.run("run", "--runtime", "plain", "--nodes", "2", "my script.py", "a b", "--c=d e", **own)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(f"['a b', '--c=d e'] {somebody.work}") == 2
    finally:
        assert somebody.run("down", **own).returncode == 0


@pytest.mark.parametrize("home", ["/", "/nonexistent"])
def test_a_home_that_cannot_be_written(somebody: Somebody, home: str):
    done = somebody.run("run", "my script.py", HOME=home)
    assert done.returncode == 1
    assert "Permission denied" in done.stderr and "--home DIR or TRAINYARD_HOME" in done.stderr, done.stderr


def test_blanks_in_every_name_and_folders_that_cannot_be_written(somebody: Somebody):
    """What `up` proposes to type can be typed; the script's folder is not written to."""
    home = {"HOME": str(somebody.home)}
    up = somebody.run("up", "--detach", **home)
    assert up.returncode == 0, up.stderr
    (export,) = [line.split("kubectl:")[1] for line in up.stdout.splitlines() if "export" in line]
    script = f'{export.strip()} && "$0" get && "$0" run --runtime plain "my script.py" "x y"'
    done = subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", "bash", "-c", script, somebody.program],
        capture_output=True, text=True, cwd=somebody.work, env={"PATH": SYSTEM, **home},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"['x y'] {somebody.work}" in done.stdout
    assert [path.name for path in somebody.work.iterdir()] == ["my script.py"]
