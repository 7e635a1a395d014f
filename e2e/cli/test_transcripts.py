"""Every command block of README.md and docs/ that can run on a laptop, typed into a terminal by root and by an ordinary user.

Each starts in a home that never saw Trainyard, with a checkout of his own, system programs and a virtual environment beside it. Two
things are not done again: the build (`cargo` and `npm` there say that nothing is to be built; the binary is the one under test) and pip's
downloads (the environment imports what this one has).
"""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator

import pytest

from conftest import BINARY, ROOT, wait_for
from transcripts import Block, Terminal, blocks, strays

DOCUMENTS = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]
BLOCKS = {document: blocks(document, (ROOT / document).read_text()) for document in DOCUMENTS}
RUN = [document for document in DOCUMENTS if any(not block.reason for block in BLOCKS[document])]
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER = f"yard-{os.getpid()}"
COMMAND_SECS = 240
# what the README leaves its reader with, and all that another document may build on: the gate plays a share of them
BEFORE = [
    "make install", 'export PATH="$HOME/.local/bin:$PATH"', "source .venv/bin/activate", "trainyard up --detach",
    "export KUBECONFIG=$(trainyard kubeconfig)",
]  # fmt: skip


class Reader:
    """Somebody who reads the documents: a home, a checkout, and the words that make a command run as him."""

    def __init__(self, user: str | None):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="yard-reader-", dir="/tmp"))
        self.checkout = self.home / "trainyard"
        self.words: list[str] = []
        if user:
            subprocess.run(["useradd", "--no-create-home", "--home-dir", self.home, "--shell", "/bin/bash", user], check=True)
            entry = pwd.getpwnam(user)
            self.words = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", "--"]
        self.env = {"HOME": str(self.home), "PATH": f"{self.home}/tools:{SYSTEM}", "USER": user or "root", "SHELL": "/bin/bash"}

        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.checkout / name)
        release = self.checkout / "target/release"
        release.mkdir(parents=True)
        shutil.copy2(BINARY, release / "trainyard")
        tools = self.home / "tools"
        tools.mkdir()
        (tools / "cargo").write_text('#!/bin/sh\n[ "$1" = build ] || { echo "cargo $1 is not part of this test" >&2; exit 1; }\n')
        (tools / "cargo").chmod(0o755)
        # the pages, too, are a part of the binary already
        (tools / "npm").write_text('#!/bin/sh\nmkdir -p node_modules\n')
        (tools / "npm").chmod(0o755)
        shutil.copy2(shutil.which("kubectl"), tools / "kubectl")
        self.environment(user is not None)
        # what the documents call the reader's own
        (self.checkout / "train.py").write_text("import os\nprint('trained on', os.environ.get('RANK', '0'))\n")
        (self.checkout / "train.sh").write_text("#!/bin/sh\necho trained on $RANK\n")
        (self.checkout / "train.sh").chmod(0o755)
        if user:
            shutil.chown(self.home, user, user)
            subprocess.run(["chown", "-R", f"{user}:{user}", self.home], check=True)

    def environment(self, other: bool) -> None:
        """`.venv` as `make example` leaves it."""
        python = "/usr/bin/python3" if other else sys.executable
        venv = self.checkout / ".venv"
        subprocess.run([python, "-m", "venv", "--without-pip", "--symlinks", venv], check=True)
        (packages,) = venv.glob("lib/python3*/site-packages")
        (packages / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
        (venv / "example").touch()

    def lacks(self) -> str:
        """What stands in the way of training as this reader, on this machine."""
        done = subprocess.run(
            [*self.words, self.checkout / ".venv/bin/python", "-c", "import torch, sklearn, kubeflow"],
            capture_output=True, text=True, env=self.env, cwd="/",
        )  # fmt: skip
        return done.stderr.strip().rsplit("\n", 1)[-1] if done.returncode else ""

    def remove(self, user: str | None) -> None:
        subprocess.run([*self.words, BINARY, "down"], env=self.env, cwd="/", capture_output=True)
        wait_for("all that was started to be gone", lambda: not any(map(end, self.processes(user))), 20)
        if user:
            subprocess.run(["userdel", user], check=True, capture_output=True)
        shutil.rmtree(self.home)

    def processes(self, user: str | None) -> list[int]:
        """The other user's, and those that name this home."""
        uid = pwd.getpwnam(user).pw_uid if user else None
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and (entry.stat().st_uid == uid or str(self.home).encode() in (entry / "cmdline").read_bytes()):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


def end(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def reader(request: pytest.FixtureRequest) -> Iterator[Reader]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    user = None
    if request.param == "user":
        if os.getuid() != 0 or not shutil.which("useradd") or not shutil.which("setpriv"):
            pytest.skip("only root makes another user")
        if not os.access("/usr/bin/python3", os.X_OK):
            pytest.skip("no /usr/bin/python3 for another user")
        user = USER
    made = Reader(user)
    yield made
    made.remove(user)


@pytest.mark.timeout(600)
# what only root meets lies in the README's first steps
@pytest.mark.parametrize("reader, document", [("root", "README.md"), *(("user", document) for document in RUN)], indirect=["reader"], scope="module")
def test_commands_do_what_the_document_says(reader: Reader, document: str):
    if lacking := reader.lacks():
        pytest.skip(f"the documents train with PyTorch, and this reader cannot: {lacking}")
    terminal = Terminal(reader.home, reader.words, reader.env, reader.checkout)
    try:
        if document != "README.md":
            # the README comes first
            for command in BEFORE:
                code, said = terminal.type(command, COMMAND_SECS)
                assert code == 0, said
        for block in BLOCKS[document]:
            if not block.reason:
                run(terminal, reader, block)
    finally:
        terminal.close()


def run(terminal: Terminal, reader: Reader, block: Block) -> None:
    if block.language == "python":
        script = reader.checkout / "snippet.py"
        script.write_text(block.text + "\n")
        commands = [".venv/bin/python snippet.py"]
    else:
        commands = block.commands()
    printed = ""
    for at, command in enumerate(commands):
        code, said = terminal.type(command, COMMAND_SECS)
        printed += said
        expected = block.exit if at == len(commands) - 1 else 0
        assert code == expected, f"{block.name}: `{command}` ended with {code}:\n{said}"
    for text in block.prints:
        assert text in printed, f"{block.name}: {text!r} is not in:\n{printed}"


def test_blocks_that_are_not_run_say_why(capsys: pytest.CaptureFixture):
    """They are listed; a reason is a sentence, not a word."""
    left_out = [block for document in DOCUMENTS for block in BLOCKS[document] if block.reason]
    with capsys.disabled():
        for block in left_out:
            print(f"\nnot run: {block.name}: {block.reason}", end="")
    assert all(len(block.reason.split()) >= 3 for block in left_out)
    assert len([block for document in DOCUMENTS for block in BLOCKS[document] if not block.reason]) >= 5


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_can_be_run_or_says_why_not(document: str):
    assert strays(document, (ROOT / document).read_text()) == []


def test_a_document_is_read_as_it_is_written():
    source = "\n".join([
        "text", "", "<!-- not run: needs a cluster -->", "```sh", "kubectl get", "```", "", '<!-- run: prints "a", "b" -->', "```sh",
        "# why", "echo a \\", "  b   # c", "cat <<END", "x", "END", "```", "", "```yaml", "a: b", "```",
    ])  # fmt: skip
    first, second = blocks("d.md", source)
    assert (first.reason, first.line) == ("needs a cluster", 4)
    assert second.prints == ("a", "b")
    assert second.commands() == ["echo a \\\n  b   # c", "cat <<END\nx\nEND"]
    with pytest.raises(AssertionError):
        blocks("d.md", "<!-- run: exit 3 -->\ntext")
    for stray in ["    kubectl get", "```text\nmake example\n```"]:
        assert len(strays("d.md", stray)) == 1
    assert strays("d.md", source + "\n    trainyard get [-n NAME]\n```text\n$ trainyard get\n```") == []
