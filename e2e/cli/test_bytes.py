"""Output is bytes: whatever a job prints, every reader shows all of its lines in their order, and none of its control sequences is acted on
where we quote it. `SEED` changes the bytes, `TURNS` says how often they are drawn.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import subprocess

import pytest
from conftest import BINARY, Yard, wait_for, write

SEED = int(os.environ.get("SEED", "1"))
# what surrounds a token: never a line's end, which the generator puts between tokens
ODD = [
    b"\xff\xfe", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98\x80", b"\x00", b"\x07", b"\x1b]0;title\x07", b"\x1b[31m", b"\x1b[2J", b"\t", b" ", b"%s{}",
    b'"\\', b"\xc2\x85", b"\xe2\x80\xa8", b"\x9b31m", b"[rank 7] ", b"Traceback",
]  # fmt: skip


def generated(chance: random.Random, longest: int = 1 << 20) -> tuple[bytes, list[str]]:
    """Random lines, each with a token; the tokens in order. One line is longer than a reader's part of 1 MiB, the last has no end."""
    tokens, out = [], b""
    for number in range(120):
        token = f"token{number:03}x"
        before, after = (b"".join(chance.choices(ODD, k=chance.randrange(4))) for _ in range(2))
        if number == 60:
            after += b"y" * longest
        redrawn = b"gone\r" if chance.random() < 0.1 else b""
        out += redrawn + before + token.encode() + after + chance.choice([b"\n", b"\r\n", b"\n\n"])
        tokens.append(token)
    return out.rstrip(b"\r\n"), tokens


PRINTS = """
import os, random, sys, time
chance = random.Random({seed})
data = open({path!r}, "rb").read()
while data:
    size = chance.choice([1, 2, 3, 100, 5000, 70000])
    os.write(1, data[:size])
    data = data[size:]
time.sleep({pause})
sys.exit(3)
"""


@pytest.mark.parametrize("turn", range(int(os.environ.get("TURNS", "1"))))
def test_every_reader_shows_every_line(yard: Yard, plain: str, tmp_path: pathlib.Path, turn: int) -> None:
    data, tokens = generated(random.Random(SEED * 1000 + turn))
    (tmp_path / "data").write_bytes(data)
    script = write(tmp_path / "prints.py", PRINTS.format(seed=SEED + turn, path=str(tmp_path / "data"), pause=0.5))
    name = f"bytes-{turn}"

    def raw(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([BINARY, *words], env=yard.env, capture_output=True, timeout=120)

    ran = raw("run", "--runtime", plain, "--name", name, str(script))
    assert ran.returncode == 3, ran.stderr[-2000:]
    read = {"run": ran.stdout}
    wait_for("the end to be noted", lambda: raw("logs", name).stdout.count(b"token") >= len(tokens))
    read["logs"] = raw("logs", name).stdout
    read["logs -f"] = raw("logs", "-f", name).stdout
    read["logs -o json"] = raw("logs", "-o", "json", name).stdout
    for reader, out in read.items():
        assert re.findall(rb"token\d{3}x", out) == [token.encode() for token in tokens], f"{reader}, seed {SEED}"
    # what we quote has its control sequences made visible
    for words in (["explain", name], ["explain", name, "-o", "json"], ["describe", name], ["logs", "-o", "json", name]):
        out = raw(*words).stdout
        left = sorted({byte for byte in out if byte < 0x20 and byte not in b"\n\t"} | ({0x9B} if b"\xc2\x9b" in out else set()))
        assert not left, f"{words}: {left}, seed {SEED}"
        if words[-1] == "json":
            json.loads(out)


@pytest.mark.parametrize("turn", range(int(os.environ.get("TURNS", "1"))))
def test_every_reader_of_sky_shows_every_line(yard: Yard, tmp_path: pathlib.Path, turn: int) -> None:
    data, tokens = generated(random.Random(SEED * 1000 + turn), 10 << 20)
    (tmp_path / "data").write_bytes(data)
    script = write(tmp_path / "prints.py", PRINTS.format(seed=SEED + turn, path=str(tmp_path / "data"), pause=0.5))
    name, task = f"bytes-{turn}", f"exec python3 {script}"

    def sky(*words: str) -> bytes:
        env = {**yard.env, "HOME": str(tmp_path), "USER": "me"}
        done = subprocess.run([BINARY, "sky", *words], env=env, capture_output=True, timeout=120)
        # what the job's own failure makes of it
        assert done.returncode in (0, 100), done.stderr[-2000:]
        return done.stdout

    def downloaded(pattern: str) -> bytes:
        [file] = (tmp_path / "sky_logs").glob(pattern)
        return file.read_bytes()

    try:
        read = {"launch": sky("launch", "-y", "-c", name, "--infra", "local", task)}
        read["logs"] = sky("logs", name)
        read["logs --tail"] = sky("logs", name, "--no-follow", "--tail", "100000")
        sky("logs", name, "--sync-down")
        read["logs --sync-down"] = downloaded("sky-*/*.log")
        # the pods are gone, and the file on the machine is read
        yard.kubectl("delete", "pods", "-l", f"jobset.sigs.k8s.io/jobset-name={name}-1")
        read["logs, of the machine's file"] = sky("logs", name)
        sky("logs", name, "--sync-down")
        assert downloaded("sky-*/*.log") == data
        launched = sky("jobs", "launch", "-y", "--infra", "local", task)
        number = re.search(rb"Managed Job ID: (\d+)", launched)[1].decode()
        read["jobs logs"] = sky("jobs", "logs", number)
        read["jobs logs --no-follow"] = sky("jobs", "logs", number, "--no-follow")
        sky("jobs", "logs", number, "--sync-down")
        read["jobs logs --sync-down"] = downloaded("managed_jobs/*/*/*-run.log")
    finally:
        sky("down", "-y", name)
    for reader, out in read.items():
        assert re.findall(rb"token\d{3}x", out) == [token.encode() for token in tokens], f"sky {reader}, seed {SEED}"
    # bytes stay as they were; a line that is too long comes in parts
    prefixed = re.compile(rb"^\([^()]*pid=\d+\) ", re.M)
    short = {line for line in data.split(b"\n") if len(line) < 1 << 20}
    for reader in ("logs --sync-down", "jobs logs --sync-down"):
        lines = set(prefixed.sub(b"", read[reader]).split(b"\n"))
        assert not short - lines, f"sky {reader}, seed {SEED}: {sorted(short - lines)[:5]}"
