"""Linear regression over several plain containers: no training framework, the nodes find each other by name.

442 real patients (they come inside the scikit-learn package). Each node sums up its own share of them; node 0 listens,
adds the sums, solves for the coefficients and sends them back, so all nodes end with the fit over all patients. Node 0
prints how well it explains patients that no node has used. Exits with status 1 if that is below --target.

A pod of a TrainJob finds node 0 as <job>-node-0-0.<job>; this script makes that of its own host name.
"""

import argparse
import json
import os
import socket
import sys
import time

import numpy as np
from sklearn.datasets import load_diabetes

TEST_PATIENTS = 92
PORT = 29600
WAIT_SECS = 60


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Measurements, with a 1 for the bias, and the disease's progress: the part to fit and the part to test."""
    diabetes = load_diabetes()
    rows = np.hstack([diabetes.data, np.ones((len(diabetes.data), 1))])
    order = np.random.default_rng(0).permutation(len(rows))
    train, test = order[:-TEST_PATIENTS], order[-TEST_PATIENTS:]
    return rows[train], diabetes.target[train], rows[test], diabetes.target[test]


def connect(host: str) -> socket.socket:
    """A connection to node 0, which may come later than we."""
    deadline = time.monotonic() + WAIT_SECS
    while True:
        try:
            return socket.create_connection((host, PORT), WAIT_SECS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def add_up(host: str, sums: dict, others: int) -> tuple[np.ndarray, int]:
    """Node 0: the fit over what all nodes have, which it sends to each of them, and the number of patients."""
    with socket.create_server((host, PORT), backlog=others) as server:
        server.settimeout(WAIT_SECS)
        files = [server.accept()[0].makefile("rw") for _ in range(others)]
        parts = [sums, *(json.loads(file.readline()) for file in files)]
        squares, products = (sum(np.array(part[name]) for part in parts) for name in ("squares", "products"))
        coefficients = np.linalg.solve(squares, products)
        for file in files:
            file.write(json.dumps(coefficients.tolist()) + "\n")
            file.close()
    return coefficients, sum(part["patients"] for part in parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, required=True, help="how many nodes there are")
    parser.add_argument("--target", type=float, default=0.3, help="least explained share of the variance for success")
    options = parser.parse_args()

    rank = int(os.environ["JOB_COMPLETION_INDEX"])
    job = socket.gethostname().rsplit("-node-0-", 1)[0]
    head = f"{job}-node-0-0.{job}"
    rows, progress, test_rows, test_progress = load()
    mine = slice(rank, None, options.nodes)
    own = rows[mine]
    sums = {"squares": (own.T @ own).tolist(), "products": (own.T @ progress[mine]).tolist(), "patients": len(own)}
    print(f"node {rank} of {options.nodes} on {socket.gethostname()}: {len(own)} patients", flush=True)

    if rank == 0:
        coefficients, seen = add_up(head, sums, options.nodes - 1)
    else:
        with connect(head) as link, link.makefile("rw") as file:
            file.write(json.dumps(sums) + "\n")
            file.flush()
            coefficients = np.array(json.loads(file.readline()))

    rest = ((test_progress - test_rows @ coefficients) ** 2).sum()
    explained = float(1 - rest / ((test_progress - test_progress.mean()) ** 2).sum())
    print(f"node {rank} explains {explained:.4f} of the variance", flush=True)
    if rank == 0:
        print(f"final fit {explained:.4f} from {seen} patients on {options.nodes} nodes", flush=True)
    return 0 if explained >= options.target else 1


if __name__ == "__main__":
    sys.exit(main())
