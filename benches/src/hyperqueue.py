"""Submits so many jobs to a HyperQueue of its own and prints the seconds until all are done."""

import os
import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig


def run(client, folder, count):
    start = time.monotonic()
    jobs = []
    for number in range(count):
        job = Job(default_workdir=folder)
        job.program(["/bin/sh", "-c", "true"], stdout=f"{folder}/{number}.out", stderr=f"{folder}/{number}.err")
        jobs.append(client.submit(job))
    client.wait_for_jobs(jobs)
    return time.monotonic() - start


with tempfile.TemporaryDirectory() as folder, LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=os.cpu_count()))
    client = cluster.client()
    run(client, folder, 1)
    print()
    print(run(client, folder, int(sys.argv[1])))
