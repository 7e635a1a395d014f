"""Runs all verbs in all kubectls that can be had, and writes the table of COMPATIBILITY.md between its markers.

    TRAINYARD_BIN=target/release/trainyard .venv/bin/python e2e/api/kubectl_matrix.py
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN, END = ("<!-- written by `e2e/api/kubectl_matrix.py`: begin -->", "<!-- written by `e2e/api/kubectl_matrix.py`: end -->")


def table(found: dict) -> str:
    versions = list(found["results"])
    lines = ["| kubectl | " + " | ".join(versions) + " |", "|---|" + "---|" * len(versions)]
    for verb in found["verbs"]:
        cells = ["yes" if found["results"][version].get(verb) == "" else "**no**" for version in versions]
        lines.append(f"| {verb} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "table.json"
        environment = {**os.environ, "KUBECTL_MATRIX": "all", "KUBECTL_MATRIX_TABLE": str(file)}
        words = [sys.executable, "-m", "pytest", "-q", "--timeout=1800", str(ROOT / "e2e/api/test_kubectl_matrix.py")]
        code = subprocess.run(words, env=environment, cwd=ROOT).returncode
        if not file.exists():
            return code
        found = json.loads(file.read_text())
    page = ROOT / "COMPATIBILITY.md"
    before, rest = page.read_text().split(BEGIN)
    _, after = rest.split(END)
    page.write_text(f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}")
    return code


if __name__ == "__main__":
    sys.exit(main())
