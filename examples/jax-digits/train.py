"""Handwritten digits with JAX: one process a node, the batch split over all of their devices.

1,797 real 8x8 images (they come inside the scikit-learn package) and a small network. The images are one array that is
split over the processes; the compiled step sums its gradients across them. Process 0 prints the loss and, at the end, the
accuracy on images that no process has trained on. Exits with status 1 if that is below --target.

    trainyard run --runtime jax-distributed --nodes 2 examples/jax-digits/train.py
"""

import argparse
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

TEST_IMAGES = 360


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images scaled to 0..1 and their labels: the training part and the test part, the same in every process."""
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:-TEST_IMAGES], order[-TEST_IMAGES:]
    return images[train], labels[train], images[test], labels[test]


def network(sizes: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases of each layer, the same in every process."""
    chance = np.random.default_rng(1)
    return [
        (chance.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)).astype(np.float32), np.zeros(outputs, np.float32))
        for inputs, outputs in zip(sizes, sizes[1:])
    ]


def logits(layers, images):
    for weights, biases in layers[:-1]:
        images = jax.nn.relu(images @ weights + biases)
    weights, biases = layers[-1]
    return images @ weights + biases


def loss_of(layers, images, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(layers, images)), labels[:, None], axis=1)
    return -chosen.mean()


@jax.jit
def step(layers, speed, images, labels, rate):
    loss, slopes = jax.value_and_grad(loss_of)(layers, images, labels)
    speed = jax.tree.map(lambda s, g: 0.9 * s - rate * g, speed, slopes)
    return jax.tree.map(jnp.add, layers, speed), speed, loss


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--target", type=float, default=0.9, help="least test accuracy for success")
    options = parser.parse_args()

    jax.distributed.initialize(
        coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
        cluster_detection_method="deactivate",  # all is said
    )
    rank, world = jax.process_index(), jax.process_count()
    images, labels, test_images, test_labels = load()
    share = len(images) // jax.device_count() * jax.local_device_count()
    mine = slice(rank * share, (rank + 1) * share)
    print(f"process {rank} of {world} on {os.uname().nodename}: {share} images, {jax.device_count()} devices", flush=True)

    split = NamedSharding(Mesh(jax.devices(), "data"), PartitionSpec("data"))
    whole = NamedSharding(split.mesh, PartitionSpec())
    batch = [jax.make_array_from_process_local_data(split, part[mine]) for part in (images, labels)]
    layers = jax.device_put(network([64, 128, 10]), whole)
    speed = jax.tree.map(jnp.zeros_like, layers)
    for count in range(1, options.steps + 1):
        layers, speed, loss = step(layers, speed, *batch, options.lr)
        if rank == 0 and count % 50 == 0:
            print(f"step {count}/{options.steps}  loss {float(loss):.4f}", flush=True)

    # every process says what it has; had one trained by itself, its numbers would be others
    seen = multihost_utils.process_allgather(np.array([share]))
    final = float((logits(layers, test_images).argmax(1) == test_labels).mean())
    if rank == 0:
        print(f"final accuracy {final:.2%} from {int(seen.sum())} images on {world} processes", flush=True)
    jax.distributed.shutdown()
    return 0 if final >= options.target else 1


if __name__ == "__main__":
    sys.exit(main())
