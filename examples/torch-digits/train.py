"""Handwritten digits with PyTorch DistributedDataParallel over gloo.

1,797 real 8x8 images (they come inside the scikit-learn package), a small network, every rank on its own share of
the data. Rank 0 prints the loss and accuracy of each epoch (and reports them, where somebody takes reports) and, at the
end, the accuracy on images that no rank has trained on. Exits with status 1 if that is below --target.

    trainyard run --nodes 2 --nproc-per-node 2 examples/torch-digits/train.py --epochs 20
"""

import argparse
import datetime
import json
import os
import pathlib
import ssl
import sys
import time
import urllib.request

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEST_IMAGES = 360
TRAIN_IMAGES = 1797 - TEST_IMAGES


def load() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images scaled to 0..1 and their labels: the training part and the test part, the same on every rank."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[:-TEST_IMAGES], order[-TEST_IMAGES:]
    return images[train], labels[train], images[test], labels[test]


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def report(percent: int, remaining: float, **metrics: float) -> None:
    """Tells the control plane how far training is, by the variables that it gives each pod (Kubeflow's TrainJobStatus).

    Training goes on whatever becomes of the report. `kubeflow.trainer` has the same as a function.
    """
    url = os.environ.get("KUBEFLOW_TRAINER_SERVER_URL")
    if url is None:
        return
    status = {
        "lastUpdatedTime": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "progressPercentage": percent,
        "estimatedRemainingSeconds": int(remaining),
        "metrics": [{"name": name, "value": f"{value:.4g}"} for name, value in metrics.items()],
    }
    try:
        token = pathlib.Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        post = urllib.request.Request(url, json.dumps({"trainerStatus": status}).encode(), headers)
        authority = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
        urllib.request.urlopen(post, timeout=5, context=authority).close()
    except OSError as error:
        print(f"progress is not reported: {error}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32, help="images of each rank in a step")
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--target", type=float, default=0.9, help="least test accuracy for success")
    parser.add_argument("--pause", type=float, default=0, help="seconds to wait after each epoch, to watch it longer")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels, test_images, test_labels = load()
    images, labels = images[rank::world], labels[rank::world]
    print(f"rank {rank} of {world} on {os.uname().nodename}: {len(images)} images", flush=True)

    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    loss_of = nn.CrossEntropyLoss()
    # every rank takes the same number of steps, or the others would wait for it for ever
    steps = TRAIN_IMAGES // world // options.batch
    started = time.monotonic()
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(1)
        for step in range(steps):
            batch = order[step * options.batch : (step + 1) * options.batch]
            optimizer.zero_grad()
            loss = loss_of(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            test = accuracy(network, test_images, test_labels)
            mean = total.item() / steps / world
            print(f"epoch {epoch}/{options.epochs}  loss {mean:.4f}  accuracy {test:.1%}", flush=True)
            remaining = (time.monotonic() - started) / epoch * (options.epochs - epoch)
            report(100 * epoch // options.epochs, remaining, loss=mean, accuracy=test)
        time.sleep(options.pause)

    final = accuracy(network, test_images, test_labels)
    if rank == 0:
        print(f"final accuracy {final:.2%} after {time.monotonic() - started:.1f} s on {world} ranks", flush=True)
    dist.destroy_process_group()
    return 0 if final >= options.target else 1


if __name__ == "__main__":
    sys.exit(main())
