"""Documents as transcripts: their command blocks, and a terminal (tmux) that runs them as a user would type them.

A document's `sh` blocks are run one after the other in one shell, its `python` blocks as scripts. A comment in the document's source,
just before a block, says what a reader need not be told:

    <!-- not run: REASON -->            the block cannot run on a machine like this; tests list it with its reason
    <!-- run: prints "TEXT" -->         what its output must have; several are separated by `, "…"`
    <!-- run: exit 3 -->                the exit code of its last command
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shlex
import subprocess
import time

COMMENT = re.compile(r"<!-- (not run|run): (.*?) -->", re.DOTALL)
# how a command that somebody may copy begins
COMMANDS = ("trainyard ", "kubectl ", "make ", "helm ", "cargo ", "pip ", "uv ", "docker ", "source <(")
# the shell's prompt: how many commands it has run, and how the last one ended
PROMPT = re.compile(r"<(\d+):(\d+)>")


@dataclasses.dataclass
class Block:
    """One block of a document."""

    document: str
    line: int
    language: str
    text: str
    # why it is not run; empty: it is
    reason: str = ""
    prints: tuple[str, ...] = ()
    exit: int = 0

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"

    def commands(self) -> list[str]:
        """Its commands, each with the lines that belong to it; comments are left out."""
        commands: list[str] = []
        parts: list[str] = []
        until = ""
        for line in self.text.splitlines():
            if not parts and (not line.strip() or line.lstrip().startswith("#")):
                continue
            parts.append(line)
            if until:
                until = "" if line.strip() == until else until
            elif match := re.search(r"<<-?\s*'?(\w+)'?", line):
                until = match[1]
            if not until and not line.endswith("\\") and complete("\n".join(parts)):
                commands.append("\n".join(parts))
                parts = []
        assert not parts, f"{self.name} ends within a command: {parts}"
        return commands


def complete(text: str) -> bool:
    """Whether a shell would take it, rather than wait for more."""
    return subprocess.run(["bash", "-n", "-c", text], capture_output=True).returncode == 0


def blocks(document: str, source: str) -> list[Block]:
    """The `sh` and `python` blocks of a document. Fails where a comment stands before none."""
    found: list[Block] = []
    lines = source.splitlines()
    at = 0
    pending: re.Match | None = None
    while at < len(lines):
        line = lines[at]
        if match := COMMENT.match("\n".join(lines[at : at + 4])):
            assert pending is None, f"{document}:{at + 1}: two comments before one block"
            pending = match
            at += match[0].count("\n") + 1
            continue
        if line.startswith("```"):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].startswith("```"))
            language, text = line[3:].strip(), "\n".join(lines[at + 1 : end])
            if language in ("sh", "python"):
                found.append(Block(document, at + 1, language, text, **said(pending)))
                pending = None
            at = end + 1
        else:
            at += 1
        assert pending is None or not line.strip(), f"{document}:{at}: a comment, but no block after it"
    assert pending is None, f"{document}: a comment, but no block after it"
    return found


def strays(document: str, source: str) -> list[str]:
    """Commands that stand in blocks which nobody runs: indented ones, and those of another language than `sh`."""
    found = []
    language = None
    for at, line in enumerate(source.splitlines(), 1):
        if line.startswith("```"):
            language = line[3:].strip() if language is None else None
            continue
        text = line.strip()
        indented = language is None and line.startswith("    ")
        # what is shown (`$ …`) and what has choices in it (`[-n NAME]`) is not for copying
        if (indented or language not in (None, "sh", "python")) and text.startswith(COMMANDS) and "[" not in text:
            found.append(f"{document}:{at}: `{text}`: put it into a block of language sh, which tests run")
    return found


def said(comment: re.Match | None) -> dict:
    """What a comment says of the block after it."""
    if comment is None:
        return {}
    verb, text = comment.groups()
    if verb == "not run":
        return {"reason": " ".join(text.split())}
    given: dict = {}
    if code := re.fullmatch(r"exit (\d+)", text.strip()):
        given["exit"] = int(code[1])
    else:
        assert text.strip().startswith("prints "), f"<!-- run: {text} -->: say `prints \"TEXT\"` or `exit N`"
        given["prints"] = tuple(re.findall(r'"([^"]+)"', text))
        assert given["prints"], text
    return given


class Terminal:
    """A bash in tmux, as one user."""

    def __init__(self, folder: pathlib.Path, user: list[str], env: dict[str, str], cwd: pathlib.Path, columns: int = 120):
        """`user`: the words before a command that make it run as somebody else; `folder`: the user's, for socket and transcript."""
        self.folder = folder
        self.user = user
        self.env = {**env, "TERM": "screen", "LANG": "C.UTF-8"}
        self.said = folder / "transcript"
        # an earlier terminal's words: `cat` may empty the file only after something was typed
        self.said.unlink(missing_ok=True)
        self.done = 1
        (folder / "bashrc").write_text(r"PS1='<\#:$?> '" + "\n")
        shell = ["bash", "--noprofile", "--rcfile", str(folder / "bashrc")]
        size = ["-x", str(columns), "-y", "50"]
        self.tmux("new-session", "-d", *size, "-c", str(cwd), shlex.join(shell))
        self.tmux("pipe-pane", "-o", f"cat > {shlex.quote(str(self.said))}")
        self.tmux("send-keys", "Enter")
        self.wait(20)

    def tmux(self, *words: str) -> str:
        words = (*self.user, "tmux", "-S", str(self.folder / "tmux"), "-f", "/dev/null", *words)
        done = subprocess.run(words, capture_output=True, text=True, env=self.env, cwd="/")
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-J", "-S", "-2000")

    def wait(self, timeout: float) -> int:
        """Waits for a new prompt; returns the exit code before it."""
        deadline = time.monotonic() + timeout
        while True:
            prompts = PROMPT.findall(self.screen())
            if prompts and int(prompts[-1][0]) >= self.done and self.screen().rstrip().endswith(">"):
                self.done = int(prompts[-1][0])
                return int(prompts[-1][1])
            assert time.monotonic() < deadline, f"no prompt after {timeout} s:\n{self.screen()}"
            time.sleep(0.05)

    def type(self, command: str, timeout: float) -> tuple[int, str]:
        """Types a command; returns its exit code and what it printed."""
        start = self.said.stat().st_size if self.said.exists() else 0
        self.done += 1
        self.tmux("set-buffer", "--", command + "\n")
        self.tmux("paste-buffer", "-d")
        code = self.wait(timeout)
        deadline = time.monotonic() + 60
        while True:
            with open(self.said, "rb") as file:
                file.seek(start)
                printed = file.read().decode(errors="replace")
            # the file follows the screen
            if f"<{self.done}:" in printed:
                return code, printed
            assert time.monotonic() < deadline, f"the transcript lacks prompt {self.done}:\n{printed}"
            time.sleep(0.02)

    def close(self) -> None:
        subprocess.run([*self.user, "tmux", "-S", str(self.folder / "tmux"), "kill-server"], capture_output=True, cwd="/", env=self.env)
