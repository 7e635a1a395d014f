"""Errors as users meet them: each is printed with its code, says nothing twice, and has a page that `explain` prints."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess

from conftest import BINARY, ROOT, Yard

PAGES = ROOT / "docs" / "errors"
HELLO = str(ROOT / "examples" / "hello" / "train.py")

# what is typed beside a control plane with one job, "done", that has ended
BESIDE_A_JOB = {
    "TY0001": ["run", "--env", "BATCH", "--runtime", "plain", HELLO],
    "TY0002": ["run", "--warm", "--runtime", "plain", HELLO],
    "TY0006": ["explain", "TY9999"],
    "TY0107": ["get", "--kubeconfig", "missing.yaml"],
    "TY0108": ["get", "--kubeconfig", "{kubeconfig}", "--context", "nowhere"],
    "TY0201": ["run", "missing.py"],
    "TY0202": ["run", "--workdir", "missing", HELLO],
    "TY0203": ["run", "--venv", "missing", HELLO],
    "TY0211": ["run", "--runtime", "tourch", HELLO],
    "TY0213": ["run", "--gpus", "999", "--runtime", "plain", HELLO],
    "TY0214": ["run", "--name", "done", "--runtime", "plain", HELLO],
    "TY0216": ["run", "--sweep", "a=" + ",".join(map(str, range(101))), "--objective", "loss", "--runtime", "plain", HELLO],
    "TY0301": ["logs", "missing"],
    "TY0302": ["logs", "done", "--rank", "9"],
    "TY0303": ["logs", "done", "--attempt", "9"],
    "TY0304": ["exec", "done", "--", "true"],
    "TY0306": ["suspend", "done"],
    "TY0308": ["wait", "done", "--for", "failed"],
    "TY0309": ["metrics", "done", "--metric", "missing"],
    "TY0401": ["up"],
    "TY0504": ["restore", "missing"],
    "TY0601": ["operator", "--controllers", "missing"],
}


def parts(message: str) -> list[str]:
    return [part.strip() for line in message.splitlines() for part in line.split(": ")]


def check(code: str, printed: str) -> None:
    """The error of a command: its code first, and no part of it twice."""
    error = printed[printed.index("error[") :]
    assert error.startswith(f"error[{code}]: "), f"{code}: {printed}"
    assert len(parts(error)) == len(set(parts(error))), error


def test_errors_have_codes_and_say_nothing_twice(yard: Yard, tmp_path: pathlib.Path):
    yard.run("run", "--name", "done", "--runtime", "plain", HELLO)
    for code, words in BESIDE_A_JOB.items():
        words = [word.format(kubeconfig=yard.kubeconfig) for word in words]
        done = yard.run(*words, check=False, cwd=tmp_path)
        assert done.returncode != 0, code
        check(code, done.stderr)
    yard.run("delete", "done")


def test_errors_without_a_control_plane(tmp_path: pathlib.Path):
    env = {**os.environ, "TRAINYARD_HOME": str(tmp_path / "home"), "KUBECONFIG": ""}
    (tmp_path / "file").write_text("no backup")
    cases = {
        "TY0004": ["backup", "/proc/x/y", "--home", str(tmp_path)],
        "TY0101": ["get"],
        "TY0402": ["up", "--listen", "192.0.2.1:1"],
        "TY0503": ["backup", str(tmp_path / "b")],
        "TY0506": ["restore", str(tmp_path / "file")],
        "TY0507": ["damaged", "--forget", "configmaps/one"],
    }
    (tmp_path / "store.db").write_text("")
    for code, words in cases.items():
        done = subprocess.run([BINARY, *words], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0, code
        check(code, done.stderr)


def test_explain_prints_the_pages():
    """In the terminal the same text as in docs/errors, without any server."""
    listed = json.loads(subprocess.run([BINARY, "explain", "--list", "-o", "json"], capture_output=True, text=True, check=True).stdout)
    pages = {path.stem: path.read_text() for path in PAGES.glob("TY*.md")}
    assert {entry["code"]: entry["page"] for entry in listed} == pages
    for entry in (listed[0], listed[-1]):
        for word in (entry["code"], entry["name"]):
            assert subprocess.run([BINARY, "explain", word], capture_output=True, text=True, check=True).stdout == entry["page"]
    assert all(re.fullmatch(r"TY\d{4}", entry["code"]) for entry in listed)


def test_the_shell_completes_codes(tmp_path: pathlib.Path):
    env = {**os.environ, "TRAINYARD_HOME": str(tmp_path), "TRAINYARD_COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": "2", "_CLAP_IFS": "\n"}
    done = subprocess.run([BINARY, "--", "trainyard", "explain", "TY140"], env=env, capture_output=True, text=True, timeout=60)
    assert "TY1401" in done.stdout.split(), done
