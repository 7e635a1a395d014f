"""Values of secrets and variables are in no object but a Secret: planted markers are searched for after every verb."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from conftest import Yard, stop

SECRET, VARIABLE = "marker-of-a-secret-7f3a", "marker-of-a-variable-91bc"
TASK = """\
name: hush
resources: {infra: local}
envs: {PLAIN: }
secrets: {TOKEN: }
run: echo "lengths ${#PLAIN} ${#TOKEN}"; sleep 1
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("s")
    yard = Yard(folder / "home", "--audit-log", str(folder / "audit.log"))
    yard.env["HOME"] = str(folder / "me")
    (folder / "me").mkdir()
    (folder / "me/t.yaml").write_text(TASK)
    yield yard
    yard.run("sky", "down", "-y", "-a", check=False)
    stop(yard)


def objects(yard: Yard) -> str:
    """All objects that the server has, but Secrets."""
    kinds = yard.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    texts = [yard.kubectl("get", kind, "-A", "-o", "json", check=False).stdout for kind in kinds if kind != "secrets"]
    assert any("JobSet" in text for text in texts)
    return "\n".join(texts)


def arguments() -> str:
    """The arguments of all processes."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
    return "\n".join(found)


def test_markers_are_in_secrets_alone(yard: Yard) -> None:
    me = pathlib.Path(yard.env["HOME"])
    given = ["--env", f"PLAIN={VARIABLE}", "--secret", f"TOKEN={SECRET}"]
    verbs = [
        ["launch", "-y", "-c", "hush", *given, "t.yaml"],
        ["exec", "hush", *given, "t.yaml"],
        ["status"], ["status", "-v"], ["status", "-o", "json"],
        ["queue", "hush"], ["queue", "hush", "-o", "json"],
        ["cost-report"], ["logs", "hush", "1", "--no-follow"],
        ["stop", "-y", "hush"], ["start", "-y", "hush"],
    ]  # fmt: skip
    for verb in verbs:
        done = yard.run("sky", *verb, check=False, cwd=me)
        said = done.stdout + done.stderr
        places = {"what it prints": said, "objects": objects(yard), "arguments": arguments()}
        for file in [*yard.home.glob("*.log"), yard.home.parent / "audit.log"]:
            places[file.name] = file.read_text(errors="replace")
        found = [(place, marker) for place, text in places.items() for marker in (SECRET, VARIABLE) if marker in text]
        assert not found, f"after sky {verb[0]}: {found}"
    assert f"lengths {len(VARIABLE)} {len(SECRET)}" in yard.run("sky", "logs", "hush", "1", "--no-follow", cwd=me).stdout
    # files that hold them are their owner's alone
    for root in (yard.home, me):
        grep = subprocess.run(["grep", "-rlaE", f"{SECRET}|{VARIABLE}", str(root)], capture_output=True, text=True)
        for file in map(pathlib.Path, grep.stdout.split()):
            assert file.stat().st_mode & 0o077 == 0, file


def test_a_secret_without_a_value_is_refused(yard: Yard) -> None:
    done = yard.run("sky", "launch", "-y", "-c", "none", "--env", "PLAIN=x", "t.yaml", check=False, cwd=yard.env["HOME"])
    assert done.returncode == 1 and "Secret variable 'TOKEN' is None" in done.stderr, done.stderr
