"""A server for each test, and never the cluster of the user who runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No home, kubeconfig or cluster but those of the test."""
    for name in ("KUBECONFIG", "TRAINYARD_HOME", "XDG_DATA_HOME", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()


@pytest.fixture
def kubeconfig(server: Server, tmp_path: Path) -> Path:
    """A kubeconfig for the server, in namespace `team`; a second context has none."""
    here = {"cluster": "c", "user": "u", "namespace": "team"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "here", "context": here}, {"name": "other", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "here",
    }
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(config))
    return path
