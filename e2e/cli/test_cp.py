"""`trainyard cp`: files and folders from and to a running rank."""

import pathlib

import pytest

from conftest import Yard, wait_for

pytestmark = [pytest.mark.usefixtures("plain"), pytest.mark.timeout(300)]


@pytest.fixture(name="job")
def running_job(yard: Yard, tmp_path: pathlib.Path):
    """A job whose two ranks run in a folder of their own, with some files in it."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/t.py").write_text(
        "import os, pathlib, time\n"
        "place = pathlib.Path('out') / os.environ.get('JOB_COMPLETION_INDEX', '0')\n"
        "(place / 'deep').mkdir(parents=True)\n"
        "(place / 'model.bin').write_bytes(bytes(range(256)) * 4096)\n"
        "(place / 'deep/a file').write_text('x')\n"
        "os.symlink('model.bin', place / 'last')\n"
        "os.symlink('/etc/passwd', place / 'away')\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    yard.run("run", "--detach", "--runtime", "plain", "--nodes", "2", "--name", "copied", "t.py", cwd=tmp_path / "work")
    wait_for("both ranks", lambda: yard.run("logs", "copied", check=False).stdout.count("ready") == 2, 60)
    yield "copied"
    yard.run("delete", "copied", "-y", check=False)


def test_files_come_and_go(yard: Yard, tmp_path: pathlib.Path, job: str):
    here = tmp_path / "here"
    here.mkdir()
    done = yard.run("cp", f"{job}:out/0/model.bin", str(here / "mine.bin"))
    assert "1 file copied, 1.0 MiB" in done.stderr and done.stdout == ""
    assert (here / "mine.bin").read_bytes() == bytes(range(256)) * 4096
    # into a folder that is there, by its own name; of another rank; without what leads out of it
    done = yard.run("cp", "--rank", "1", f"trainjob/{job}:out/1/", str(here))
    assert "2 files copied" in done.stderr and "away is left out: it is a link that leads out of its folder" in done.stderr
    assert (here / "1/deep/a file").read_text() == "x" and (here / "1/last").read_bytes() == (here / "mine.bin").read_bytes()
    assert not (here / "1/away").is_symlink()
    # and back: a folder under another name, and a file into a folder
    yard.run("cp", str(here / "1"), f"{job}:{tmp_path}/back")
    assert (tmp_path / "back/deep/a file").read_text() == "x"
    yard.run("cp", str(here / "mine.bin"), f"{job}:out")
    assert (tmp_path / "work/out/mine.bin").stat().st_size == 1 << 20
    yard.run("cp", f"{job}:.", str(here / "all"))
    assert (here / "all/t.py").is_file()


def test_what_cannot_be_copied_is_said(yard: Yard, tmp_path: pathlib.Path, job: str):
    for words, code, told in (
        ((f"{job}:nowhere", "x"), 1, "nowhere"),
        (("nowhere", f"{job}:x"), 1, "cannot read nowhere"),
        (("a", "b"), 2, "both paths are on this machine"),
        ((f"{job}:a", f"{job}:b"), 2, "both paths are in jobs"),
        ((__file__, f"{job}:/no/such/folder/x"), 1, "/no/such/folder"),
        ((__file__, f"{job}:/no/such/folder/"), 2, "is no folder in pod"),
        (("no-job:x", "y"), 3, "no-job"),
        (("--rank", "7", f"{job}:x", "y"), 2, "rank"),
    ):
        done = yard.run("cp", *words, cwd=tmp_path, check=False)
        assert done.returncode == code and told in done.stderr, (words, done.returncode, done.stderr)
        assert not (tmp_path / "x").exists()
