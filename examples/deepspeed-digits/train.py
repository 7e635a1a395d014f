"""Handwritten digits with DeepSpeed, started by mpirun: ZeRO, the optimizer's state split over the ranks.

1,797 real 8x8 images (they come inside the scikit-learn package) and a small network, every rank on its own share of the
data. Works on CPUs (gloo) as on GPUs (nccl). Rank 0 prints the loss of each epoch and, at the end, the accuracy on images
that no rank has trained on. Exits with status 1 if that is below --target.

    trainyard run --runtime deepspeed-distributed --nodes 2 examples/deepspeed-digits/train.py
"""

import argparse
import os
import socket
import sys

import deepspeed
import torch
from mpi4py import MPI
from sklearn.datasets import load_digits
from torch import nn

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


def rendezvous() -> None:
    """Tells torch where rank 0 is and who we are; a free port, so that several jobs can share a machine."""
    world = MPI.COMM_WORLD
    here = None
    if world.rank == 0:
        with socket.create_server(("", 0)) as server:
            here = (socket.gethostbyname(socket.gethostname()), server.getsockname()[1])
    address, port = world.bcast(here)
    local = world.Split_type(MPI.COMM_TYPE_SHARED)
    os.environ.update(
        MASTER_ADDR=address, MASTER_PORT=str(port),
        RANK=str(world.rank), WORLD_SIZE=str(world.size), LOCAL_RANK=str(local.rank),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="images of each rank in a step")
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--target", type=float, default=0.9, help="least test accuracy for success")
    options = parser.parse_args()

    rendezvous()
    on_gpu = torch.cuda.is_available()
    # for ranks that share a machine's memory, and compiled when it is first used, for minutes: gloo does without
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("nccl" if on_gpu else "gloo", auto_mpi_discovery=False)
    rank, world = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels, test_images, test_labels = load()
    images, labels = images[rank::world], labels[rank::world]
    print(f"rank {rank} of {world} on {os.uname().nodename}: {len(images)} images", flush=True)

    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    settings = {
        "train_micro_batch_size_per_gpu": options.batch,
        "zero_optimization": {"stage": 1},
        # torch's own optimizer: DeepSpeed's are compiled when they are first used
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.Adam(network.parameters(), lr=options.lr)
    engine, optimizer, _, _ = deepspeed.initialize(model=network, optimizer=optimizer, config=settings)
    loss_of = nn.CrossEntropyLoss()
    # every rank takes the same number of steps, or the others would wait for it for ever
    steps = TRAIN_IMAGES // world // options.batch
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(1, device=engine.device)
        for step in range(steps):
            batch = order[step * options.batch : (step + 1) * options.batch]
            loss = loss_of(engine(images[batch].to(engine.device)), labels[batch].to(engine.device))
            engine.backward(loss)
            engine.step()
            total += loss.detach()
        deepspeed.comm.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}/{options.epochs}  loss {total.item() / steps / world:.4f}", flush=True)

    seen = torch.tensor([len(images)], device=engine.device)
    deepspeed.comm.all_reduce(seen)
    with torch.no_grad():
        final = (engine(test_images.to(engine.device)).argmax(1).cpu() == test_labels).float().mean().item()
    if rank == 0:
        own = sum(part.numel() for part in optimizer.single_partition_of_fp32_groups)
        every = sum(parameter.numel() for parameter in network.parameters())
        print(f"rank 0 keeps the state of {own} of {every} parameters", flush=True)
        print(f"final accuracy {final:.2%} from {seen.item()} images on {world} ranks", flush=True)
    deepspeed.comm.destroy_process_group()
    return 0 if final >= options.target else 1


if __name__ == "__main__":
    sys.exit(main())
