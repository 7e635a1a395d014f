"""Gradient boosted trees with XGBoost: every node has its own share of the rows, all build the same trees.

569 real biopsies with 30 measurements each (they come inside the scikit-learn package). Node 0 also runs the tracker,
through which the workers find each other; then they sum the histograms from which each split is chosen. Worker 0 prints
the accuracy on rows that no worker has trained on. Exits with status 1 if that is below --target, or if the workers'
models differ.

    trainyard run --runtime xgboost-distributed --nodes 2 examples/xgboost-cancer/train.py
"""

import argparse
import hashlib
import os
import socket
import sys

import numpy as np
import xgboost as xgb
from sklearn.datasets import load_breast_cancer
from xgboost import collective
from xgboost.tracker import RabitTracker

TEST_ROWS = 119


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Measurements and diagnoses: the training part and the test part, the same on every worker."""
    cancer = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(cancer.data))
    train, test = order[:-TEST_ROWS], order[-TEST_ROWS:]
    return cancer.data[train], cancer.target[train], cancer.data[test], cancer.target[test]


def train(options: argparse.Namespace) -> int:
    rank, world = collective.get_rank(), collective.get_world_size()
    rows, labels, test_rows, test_labels = load()
    mine = xgb.DMatrix(rows[rank::world], labels[rank::world])
    print(f"worker {rank} of {world} on {os.uname().nodename}: {mine.num_row()} rows", flush=True)
    total = collective.allreduce(np.array([mine.num_row()]), collective.Op.SUM)

    settings = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.3, "nthread": 1}
    model = xgb.train(settings, mine, num_boost_round=options.rounds)

    digest = hashlib.sha256(model.save_raw("json")).hexdigest()
    same = collective.allreduce(np.array([digest == collective.broadcast(digest, 0)], dtype=np.int64), collective.Op.SUM)
    final = float(((model.predict(xgb.DMatrix(test_rows)) > 0.5) == test_labels).mean())
    if rank == 0:
        print(f"final accuracy {final:.2%} from {total[0]} rows, {same[0]} of {world} models alike", flush=True)
    return 0 if final >= options.target and same[0] == world else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--target", type=float, default=0.9, help="least test accuracy for success")
    options = parser.parse_args()

    host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
    task, workers = os.environ["DMLC_TASK_ID"], int(os.environ["DMLC_NUM_WORKER"])
    tracker = None
    if task == "0":
        tracker = RabitTracker(n_workers=workers, host_ip=socket.gethostbyname(host), port=port, sortby="task")
        tracker.start()
    with collective.CommunicatorContext(dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=task, dmlc_retry=30):
        status = train(options)
    if tracker is not None:
        tracker.wait_for()
    return status


if __name__ == "__main__":
    sys.exit(main())
