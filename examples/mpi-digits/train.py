"""Handwritten digits with mpi4py: softmax regression, gradients summed by MPI.

1,797 real 8x8 images (they come inside the scikit-learn package), every rank on its own share of them. Rank 0 prints the
accuracy on images that no rank has trained on. Exits with status 1 if that is below --target.

    kubectl apply -f examples/mpi-digits/runtime.yaml
    trainyard run --runtime mpi-distributed --nodes 2 examples/mpi-digits/train.py
"""

import argparse
import sys

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

TEST_IMAGES = 360


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images scaled to 0..1, with a 1 for the bias, and their labels: the training part and the test part."""
    digits = load_digits()
    images = np.hstack([digits.data / 16, np.ones((len(digits.data), 1))])
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-TEST_IMAGES], order[-TEST_IMAGES:]
    return images[train], digits.target[train], images[test], digits.target[test]


def slopes(weights: np.ndarray, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """Gradient and cross-entropy, summed over the images."""
    scores = images @ weights
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    own = np.arange(len(labels))
    loss = -np.log(chances[own, labels]).sum()
    chances[own, labels] -= 1
    return images.T @ chances, float(loss)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--target", type=float, default=0.9, help="least test accuracy for success")
    options = parser.parse_args()

    world = MPI.COMM_WORLD
    images, labels, test_images, test_labels = load()
    total = len(images)
    images, labels = images[world.rank :: world.size], labels[world.rank :: world.size]
    print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}: {len(images)} images", flush=True)

    weights = np.zeros((images.shape[1], 10))
    gradient = np.empty_like(weights)
    for step in range(1, options.steps + 1):
        own, loss = slopes(weights, images, labels)
        world.Allreduce(own, gradient)
        weights -= options.lr * gradient / total
        loss = world.reduce(loss)
        if world.rank == 0 and step % 50 == 0:
            print(f"step {step}/{options.steps}  loss {loss / total:.4f}", flush=True)

    seen = world.reduce(len(images))
    final = float(((test_images @ weights).argmax(1) == test_labels).mean())
    if world.rank == 0:
        print(f"final accuracy {final:.2%} from {seen} images on {world.size} ranks", flush=True)
    return 0 if final >= options.target else 1


if __name__ == "__main__":
    sys.exit(main())
