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


def generated(chance: random.Random) -> tuple[bytes, list[str]]:
    """Random lines, each with a token; the tokens in order. One line is longer than a reader's part of 1 MiB, the last has no end."""
    tokens, out = [], b""
    for number in range(120):
        token = f"token{number:03}x"
        before, after = (b"".join(chance.choices(ODD, k=chance.randrange(4))) for _ in range(2))
        if number == 60:
            after += b"y" * (1 << 20)
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
