"""Handwritten digits with MLX over MPI, on the CPU where there is no GPU.

1,797 real 8x8 images (they come inside the scikit-learn package) and a small network, every rank on its own share of the
data; gradients are averaged over the ranks. Rank 0 prints the accuracy on images that no rank has trained on. Exits with
status 1 if that is below --target.

    trainyard run --runtime mlx-distributed --nodes 2 examples/mlx-digits/train.py
"""

import argparse
import os
import sys

# MLX asks for the name that only Debian's development package has
os.environ.setdefault("MLX_MPI_LIBNAME", "libmpi.so.40")

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from sklearn.datasets import load_digits

TEST_IMAGES = 360


def load() -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """Images scaled to 0..1 and their labels: the training part and the test part, the same on every rank."""
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-TEST_IMAGES], order[-TEST_IMAGES:]
    return mx.array(images[train]), mx.array(labels[train]), mx.array(images[test]), mx.array(labels[test])


def loss_of(model: nn.Module, images: mx.array, labels: mx.array) -> mx.array:
    return nn.losses.cross_entropy(model(images), labels, reduction="mean")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--target", type=float, default=0.9, help="least test accuracy for success")
    options = parser.parse_args()

    # strict: without MPI this would otherwise be a group of one
    world = mx.distributed.init(strict=True, backend="mpi")
    rank, size = world.rank(), world.size()
    images, labels, test_images, test_labels = load()
    images, labels = images[rank::size], labels[rank::size]
    print(f"rank {rank} of {size} on {os.uname().nodename}: {len(images)} images", flush=True)

    mx.random.seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = optim.Adam(learning_rate=options.lr)
    slopes_of = nn.value_and_grad(model, loss_of)
    for step in range(1, options.steps + 1):
        loss, slopes = slopes_of(model, images, labels)
        optimizer.update(model, nn.average_gradients(slopes))
        mx.eval(model.parameters(), optimizer.state)
        if step % 25 == 0:
            mean = mx.distributed.all_sum(loss).item() / size
            if rank == 0:
                print(f"step {step}/{options.steps}  loss {mean:.4f}", flush=True)

    seen = mx.distributed.all_sum(mx.array(len(images))).item()
    final = (model(test_images).argmax(axis=1) == test_labels).mean().item()
    if rank == 0:
        print(f"final accuracy {final:.2%} from {seen} images on {size} ranks", flush=True)
    return 0 if final >= options.target else 1


if __name__ == "__main__":
    sys.exit(main())
