"""MPIJobs on real Kubernetes (`cluster.py`), by the rights of `manifests/components/mpi` and no others."""

from __future__ import annotations

import pathlib

import pytest

from cluster import AS_UPSTREAM, Cluster, Operator, running, url
from conftest import wait_for
from test_recordings import NOT_YET, hold, replay


@pytest.fixture
def with_mpijobs(cluster: Cluster):
    """The cluster with what the component adds."""
    files = cluster.install_mpijobs()
    yield cluster
    for file in reversed(files[2:]):
        cluster.kubectl("delete", "-f", file, "--ignore-not-found")


@pytest.mark.timeout(900)
def test_recordings_of_mpijobs_on_kubernetes(with_mpijobs: Cluster, tmp_path: pathlib.Path):
    """The scenarios of MPIJobs. The operator runs without leader election, but still takes the Lease of mpi-operator for MPIJobs."""
    cluster = with_mpijobs
    operator = Operator(cluster, tmp_path, url(), "--controllers=mpijob", config={**AS_UPSTREAM, "clientConnection": {"qps": 500, "burst": 1000}})
    with running(operator):
        wait_for("the lease", lambda: operator.number("mpi_operator_is_leader") == 1, 60)
        holder = cluster.get("-n", "mpi-operator", "lease", "mpi-operator")["spec"]["holderIdentity"]
        assert holder
        passed, failed = replay(tmp_path, "mpijob", "--kubeconfig", cluster.kubeconfig, "--scale", "1.5")
        hold(passed, failed, "mpijob", NOT_YET["mpijob"])
        log = operator.log.read_text()
        # a new kind is known to the API server's admission only after some seconds, and tried again until then
        lacking = [line for line in log.splitlines() if "forbidden" in line and "cannot find RESTMapping" not in line]
        assert not lacking, lacking[:3]
        assert "bug:" not in log
        # a gate plays a share of the scenarios
        assert operator.number("mpi_operator_jobs_created_total") > 0
        assert operator.number("mpi_operator_jobs_successful_total") > 0
        assert operator.end() == 0
        assert cluster.get("-n", "mpi-operator", "lease", "mpi-operator")["spec"].get("holderIdentity", "") == "", "it is given back"
