"""One trial of a search: handwritten digits with a support vector machine.

1,797 real 8x8 images (they come inside the scikit-learn package). C, gamma and the kernel come from the search, by the
variables that it gives each trial; the accuracy on images that were not trained on goes back through the status server
(Kubeflow's TrainJobStatus), which is where the search reads it.

    kubectl apply -f examples/optimization/search.yaml
"""

import datetime
import json
import os
import pathlib
import ssl
import urllib.request

from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC


def report(**metrics: float) -> None:
    """Sends the metrics; `update_trainjob_status` of the kubeflow package does the same."""
    url = os.environ.get("KUBEFLOW_TRAINER_SERVER_URL")
    if url is None:
        return
    status = {
        "lastUpdatedTime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "progressPercentage": 100,
        "metrics": [{"name": name, "value": f"{value:.5f}"} for name, value in metrics.items()],
    }
    token = pathlib.Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text().strip()
    request = urllib.request.Request(
        url,
        json.dumps({"trainerStatus": status}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="POST",
    )
    context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    urllib.request.urlopen(request, timeout=30, context=context).close()


def main() -> None:
    told = {name: os.environ[f"KUBEFLOW_TRAINER_OPT_{name}"] for name in ("C", "GAMMA", "KERNEL")}
    model = SVC(C=float(told["C"]), gamma=float(told["GAMMA"]), kernel=told["KERNEL"])
    digits = load_digits()
    accuracy = cross_val_score(model, digits.data / 16, digits.target, cv=3).mean()
    print(f"{told} accuracy {accuracy:.2%}", flush=True)
    report(accuracy=accuracy)


if __name__ == "__main__":
    main()
