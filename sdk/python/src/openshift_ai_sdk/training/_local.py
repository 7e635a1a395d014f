"""The control plane of this machine (`trainyard up`): where it is, and what its pods, processes here, must find."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from openshift_ai_sdk.training._errors import MPIJobInvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INHERITED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "LD_LIBRARY_PATH", "HF_HOME")
"""What of the caller's environment a job gets, so that it finds the same Python and packages."""

PACKAGES = {
    "OpenMPI": "as root, apt-get install openmpi-bin",
    "MPICH": "pip install mpich",
    "Intel": "pip install impi-rt",
}
"""How to install each MPI."""

SIGNS = {"OpenMPI": "Open MPI", "Intel": "Intel(R) MPI", "MPICH": "HYDRA"}
"""What `mpirun --version` of each says. Intel's is a Hydra, too, so it is looked for first."""


def home() -> Path | None:
    """Where this machine's control plane keeps its things; `None` for who has no home directory."""
    named = os.environ.get("TRAINYARD_HOME")
    if named:
        return Path(named).absolute()
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if data.is_absolute():
        return data / "trainyard"
    try:
        return Path.home() / ".local/share/trainyard"
    except RuntimeError:
        return None


def is_kubeconfig_of_home(path: Path) -> bool:
    """Whether a kubeconfig is that of a control plane of this machine."""
    real = path.resolve()
    return real.name == "kubeconfig" and (real.parent / "lock").exists()


def variables() -> dict[str, str]:
    """Return the caller's variables; programs of our virtual environment come first, active or not."""
    found = {name: os.environ[name] for name in INHERITED if name in os.environ}
    if sys.prefix != sys.base_prefix:
        beside = str(Path(sys.prefix) / "bin")
        path = found.get("PATH", os.defpath)
        if beside not in path.split(os.pathsep):
            found["PATH"] = f"{beside}{os.pathsep}{path}"
        found["VIRTUAL_ENV"] = sys.prefix
    return found


def check_mpi(implementation: str, words: Sequence[str], here: Mapping[str, str]) -> None:
    """Refuse a job whose mpirun is missing here, or is another MPI's than the job is for."""
    if words[0].rsplit("/", 1)[-1] not in ("mpirun", "mpiexec"):
        return
    program = shutil.which(words[0], path=here.get("PATH"))
    if program is None:
        raise MPIJobInvalidError(
            f"there is no {words[0]} on this machine: {PACKAGES[implementation]}", "implementation"
        )
    try:
        told = subprocess.run(  # noqa: S603
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False, env={**os.environ, **here}
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return
    found = next((name for name in ("OpenMPI", "Intel", "MPICH") if SIGNS[name] in told), None)
    if found is not None and found != implementation:
        raise MPIJobInvalidError(
            f"implementation={implementation!r}: {program} is {found}'s; install the other "
            f"({PACKAGES[implementation]}), or say implementation={found!r}",
            "implementation",
        )


def folder(of: str | None = None) -> str:
    """Return where the job's command runs: where the caller is, or in a folder as seen from there."""
    return str(Path.cwd() / (of or ""))
