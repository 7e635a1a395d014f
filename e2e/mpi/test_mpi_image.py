"""`examples/mpi-image` without an image builder: its files laid over this machine's own in a mount namespace, run as OpenShift's
restricted-v2 runs them: a random user id, group 0, no capabilities, no new privileges."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import textwrap

import pytest
from conftest import ROOT

IMAGE = ROOT / "examples/mpi-image"
SSHD = next((path for path in (ROOT / "target/sshd/usr/sbin/sshd", pathlib.Path("/usr/sbin/sshd")) if path.exists()), None)
UID = 1000680000

pytestmark = [
    pytest.mark.skipif(SSHD is None, reason="there is no sshd: make sshd"),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts want root"),
]


def in_image(folder: pathlib.Path, script: str, group: int = 0, passwd: str = "") -> subprocess.CompletedProcess:
    """A shell's commands in a container of the image, as a random user. `passwd`: what the container's runtime adds to /etc/passwd."""
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    for path in (upper, work, root):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    # what the Containerfile does
    for name, place in (("entrypoint", "usr/lib/mpi-image/entrypoint"), ("sshd_config", "etc/ssh/mpi_sshd_config"), ("ssh_config", "etc/ssh/mpi_ssh_config")):
        (upper / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(IMAGE / name, upper / place)
    shutil.copy(SSHD, upper / "usr/lib/mpi-image/sshd")
    for library in (ROOT / "target/sshd").glob("usr/lib/*/libwrap.so*"):
        target = upper / library.relative_to(ROOT / "target/sshd")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target, follow_symlinks=False)
    for link in ("usr/sbin/sshd", "usr/local/bin/ssh"):
        (upper / link).parent.mkdir(parents=True, exist_ok=True)
        (upper / link).symlink_to("/usr/lib/mpi-image/entrypoint")
    for place, mode in (("run/sshd", 0o755), ("home/mpiuser", 0o775), ("home/mpiuser/.ssh", 0o775), ("tmp", 0o1777)):
        (upper / place).mkdir(parents=True)
        (upper / place).chmod(mode)
    (upper / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nmpi:x:1000:0::/home/mpiuser:/bin/sh\n" + passwd)
    (upper / "etc/passwd").chmod(0o664)
    # the MPIJob's Secret, as a volume with the pod's group
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f", upper / "home/mpiuser/.ssh/id_rsa"], check=True)
    (upper / "home/mpiuser/.ssh/id_rsa.pub").rename(upper / "home/mpiuser/.ssh/authorized_keys")
    for name in ("id_rsa", "authorized_keys"):
        (upper / "home/mpiuser/.ssh" / name).chmod(0o640)
        os.chown(upper / "home/mpiuser/.ssh" / name, 0, group)
    (upper / "script").write_text(textwrap.dedent(script))
    user = f"--reuid {UID} --regid {group} --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"
    # a network of its own: port 2222 may be taken here, and nothing of the test outlives its process namespace
    enter = (
        f"mount -t overlay overlay -o lowerdir=/,upperdir={upper},workdir={work} {root} && mount -t proc proc {root}/proc"
        f" && mount --rbind /dev {root}/dev && ip link set lo up 2>/dev/null; exec chroot {root} setpriv {user} env -i"
        " PATH=/usr/local/bin:/usr/bin:/bin HOME=/home/mpiuser sh /script"
    )
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "sh", "-c", enter],
                          capture_output=True, text=True, timeout=60)  # fmt: skip


REACH = """
    /usr/sbin/sshd -De &
    for attempt in 1 2 3 4 5 6 7 8; do ssh localhost true && break; done
    # many at once, as mpirun does
    for rank in 1 2 3 4 5 6; do ssh localhost "echo rank $rank as \\$(id -u)" & ranks="$ranks $!"; done
    wait $ranks
"""


@pytest.mark.parametrize(
    "passwd", ["", f"x:x:{UID}:0:x user:/:/sbin/nologin\n"], ids=["no entry", "an entry whose shell runs nothing"]
)
def test_ranks_are_reached_as_any_user(tmp_path: pathlib.Path, passwd: str) -> None:
    done = in_image(tmp_path, REACH, passwd=passwd)
    assert sorted(done.stdout.splitlines()) == [f"rank {n} as {UID}" for n in range(1, 7)], done.stderr


def test_an_entry_of_the_containers_runtime_is_left_alone(tmp_path: pathlib.Path) -> None:
    entry = f"openshift:x:{UID}:5000:x user:/home/mpiuser:/bin/sh\n"
    done = in_image(tmp_path, REACH + "    cat /etc/passwd", group=5000, passwd=entry)
    assert f"rank 6 as {UID}" in done.stdout and entry in done.stdout, done.stderr


@pytest.mark.parametrize("command", ["/usr/sbin/sshd -De", "ssh localhost true", "/usr/lib/mpi-image/entrypoint mpirun true"])
def test_who_may_not_be_known_is_told(tmp_path: pathlib.Path, command: str) -> None:
    done = in_image(tmp_path, command, group=5000)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 78 and f"user id {UID} has no entry in /etc/passwd" in line and "Run with group 0" in line
