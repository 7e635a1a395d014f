"""Comparisons with upstream's live systems at their full length, of which the gate has a seeded tenth: `make suites [SEED=N] [ONLY=NAME]`.

What came of each is in `suites.json` beside this file, with the commit, the seed and the time: it is committed with the change that ran it.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
AREAS = ("api", "cli", "dashboard", "data", "monitoring", "mpi", "node", "operator", "sky")
RESULTS = ROOT / "e2e/suites.json"
PYTEST = [sys.executable, "-m", "pytest", "-q", "--timeout", "0", "--reruns", "0"]
# by name: what is run, and how much of it
SUITES: dict[str, tuple[list[str], dict[str, str]]] = {
    "requests": ([*PYTEST, "e2e/api/test_api_differential.py"], {"CASES": "1200"}),
    "rights": ([*PYTEST, "e2e/api/test_rights_differential.py"], {"RIGHTS": "600"}),
    "trainjobs": ([*PYTEST, "e2e/operator/test_differential.py"], {"CASES": "3000"}),
    "lives": ([*PYTEST, "e2e/operator/test_jobs_differential.py"], {"CASES": "120"}),
    "kubectl": ([*PYTEST, "e2e/api/test_kubectl_matrix.py"], {"KUBECTL_MATRIX": "all"}),
    "long": ([*PYTEST, "--numprocesses", "2", "--dist", "loadgroup", "--no-loadscope-reorder", *(f"e2e/{area}" for area in AREAS)], {"LONG": "only"}),
    "mpijobs": ([*PYTEST, "e2e/mpi/live_mpijobs.py"], {"MPIJOBS": "100"}),
}


def run(name: str, seed: str) -> dict[str, object]:
    words, amounts = SUITES[name]
    amounts = {key: os.environ.get(key, value) for key, value in amounts.items()}
    report = ROOT / "target" / f"suite-{name}.xml"
    begin = time.monotonic()
    code = subprocess.run([*words, f"--junitxml={report}"], cwd=ROOT, env={**os.environ, **amounts, "SEED": seed}).returncode
    counted = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    if report.exists():
        for suite in xml.etree.ElementTree.parse(report).iter("testsuite"):
            counted = {key: value + int(suite.get(key, 0)) for key, value in counted.items()}
    return {"passed": code == 0, **counted, "seed": int(seed), **amounts, "seconds": round(time.monotonic() - begin)}


def main() -> int:
    only = os.environ.get("ONLY", "").split()
    if unknown := set(only) - set(SUITES):
        print(f"there is no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    git = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"]
    of = {"commit": subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip(), "date": time.strftime("%Y-%m-%d")}
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in only or SUITES:
        print(f"suite {name}", file=sys.stderr)
        results[name] = {**run(name, os.environ.get("SEED") or str(int(time.time()) % 1_000_000)), **of}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(f"suite {name}: {json.dumps(results[name])}", file=sys.stderr)
    return int(any(not results[name]["passed"] for name in only or SUITES))


if __name__ == "__main__":
    sys.exit(main())
