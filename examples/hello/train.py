"""A first run that needs nothing but Python: a line is fitted to points by gradient descent, over all ranks.

Each rank has points of its own. In every step it works out its gradient; rank 0 adds them up and sends the sum back, so that all
ranks take the same step: what DistributedDataParallel does for a model, over plain sockets. The points lie about y = 3 x + 1, and
the script exits with status 1 if that is not found.
"""

import json
import os
import random
import socket
import sys
import time

POINTS = 200
STEPS = 60
RATE = 0.5
WAIT_SECS = 60

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def connect() -> socket.socket:
    """A connection to rank 0, which may come later than we."""
    deadline = time.monotonic() + WAIT_SECS
    while True:
        try:
            return socket.create_connection(address, WAIT_SECS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def links() -> list:
    """Rank 0's connections to all others, or the others' one to rank 0."""
    if rank > 0:
        return [connect().makefile("rw")]
    with socket.create_server(address, backlog=world) as server:
        server.settimeout(WAIT_SECS)
        return [server.accept()[0].makefile("rw") for _ in range(world - 1)]


def send(file, numbers: list) -> None:
    file.write(json.dumps(numbers) + "\n")
    file.flush()


def all_sum(files: list, mine: list) -> list:
    """The sum of all ranks' numbers, for all ranks."""
    if rank > 0:
        send(files[0], mine)
        return json.loads(files[0].readline())
    parts = [mine] + [json.loads(file.readline()) for file in files]
    total = [sum(column) for column in zip(*parts)]
    for file in files:
        send(file, total)
    return total


def main() -> int:
    chance = random.Random(rank)
    points = [(x, 3 * x + 1 + chance.gauss(0, 0.1)) for x in (chance.uniform(-1, 1) for _ in range(POINTS))]
    print(f"rank {rank} of {world} on {socket.gethostname()}: {len(points)} points", flush=True)
    files = links()
    slope = bias = loss = 0.0
    for step in range(1, STEPS + 1):
        errors = [(x, slope * x + bias - y) for x, y in points]
        mine = [sum(e * x for x, e in errors), sum(e for _, e in errors), sum(e * e for _, e in errors), len(errors)]
        by_slope, by_bias, squares, count = all_sum(files, mine)
        loss = squares / count
        slope -= RATE * by_slope / count
        bias -= RATE * by_bias / count
        if rank == 0 and step % 20 == 0:
            print(f"step {step}/{STEPS}  loss {loss:.4f}  y = {slope:.2f} x + {bias:.2f}", flush=True)
    return 0 if abs(slope - 3) < 0.1 and abs(bias - 1) < 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
