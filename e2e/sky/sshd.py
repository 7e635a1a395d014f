"""Machines that are reached by SSH: real sshds, each in namespaces of its own, with its own processes, name, network, users and disk."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import subprocess

from conftest import ROOT, wait_for

SSHD = next((path for path in (ROOT / "target/sshd/usr/sbin/sshd", pathlib.Path("/usr/sbin/sshd")) if path.exists()), None)
USER, UID = "alice", 54321
PASSWORD = "open sesame"


def can() -> bool:
    """Whether this machine lends what the machines are made of."""
    tools = all(shutil.which(tool) for tool in ("ssh", "ssh-keygen", "unshare", "nsenter", "ip", "openssl"))
    return SSHD is not None and os.geteuid() == 0 and tools


def run(*words: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, timeout=60, **options)


class Host:
    """A machine with an address of its own, on a cable to this one."""

    def __init__(self, folder: pathlib.Path, key: pathlib.Path, number: int, **options: str):
        self.folder, self.number = folder, number
        self.name = f"m{number}"
        # no two runs of these tests share a network
        self.net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.address = f"{self.net}.{number * 4 + 2}"
        self.near = f"{self.net}.{number * 4 + 1}"
        self.cable = f"ty{os.getpid() % 100000}n{number}"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        os.chown(self.home, UID, UID)
        self.host_key = folder / "host_key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.host_key)
        shutil.copy(f"{key}.pub", folder / "authorized_keys")
        self.authorized = (folder / "authorized_keys").read_text()
        # all of /etc, because a package that is installed here replaces /etc/passwd, which ends what is mounted over that file
        run("cp", "-a", "/etc", folder / "etc")
        users = pathlib.Path("/etc/passwd").read_text()
        users += f"sshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n{USER}:x:{UID}:{UID}::{self.home}:/bin/bash\n"
        (folder / "etc/passwd").write_text(users)
        secret = run("openssl", "passwd", "-6", PASSWORD).stdout.strip()
        (folder / "etc/shadow").write_text(f"{USER}:{secret}:19000::::::\n")
        lines = {
            "Port": "22", "HostKey": self.host_key, "PidFile": "none", "AuthorizedKeysFile": folder / "authorized_keys",
            "StrictModes": "no", "UsePAM": "no", "PasswordAuthentication": "no", "MaxStartups": "100", **options,
        }  # fmt: skip
        (folder / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
        self.init: subprocess.Popen | None = None

    def boot(self) -> None:
        """Starts the machine; returns once its sshd listens."""
        libraries = SSHD.parents[1] / "lib/x86_64-linux-gnu"
        script = f"""
            set -e
            mount --bind {self.folder}/etc /etc
            mount -t tmpfs tmpfs /run
            mkdir -p /run/sshd
            mount -t proc proc /proc
            hostname {self.name}
            ip link set lo up
            echo booted
            export LD_LIBRARY_PATH={libraries}
            while read -r line; do
                case $line in
                start) {SSHD} -D -e -f {self.folder}/sshd_config 2>>{self.folder}/log & echo $! ;;
                stop) kill -9 -1; echo ended ;;
                esac
            done
        """
        self.init = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--net", "--ipc", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.init.stdout.readline() == "booted\n"
        children = pathlib.Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()
        self.pid = int(children[0])
        run("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.pid)
        run("ip", "address", "add", f"{self.near}/30", "dev", self.cable)
        run("ip", "link", "set", self.cable, "up")
        self.inside("ip", "address", "add", f"{self.address}/30", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")
        self.inside("ip", "route", "add", "default", "via", self.near)
        self.start()

    def inside(self, *words: object) -> str:
        return run("nsenter", "--target", self.pid, "--mount", "--pid", "--uts", "--net", "--ipc", "--", *words).stdout

    def lend(self, *paths: pathlib.Path) -> None:
        """Shows these folders at their places to all of its users: folders of the user who runs the tests may be closed to others."""
        closed: set[pathlib.Path] = set()
        for number, path in enumerate(paths):
            self.inside("mkdir", f"/run/lent{number}")
            self.inside("mount", "--bind", path, f"/run/lent{number}")
            above = [folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001]
            closed.update(above[:1])
        for folder in closed:
            self.inside("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
        for number, path in enumerate(paths):
            self.inside("mkdir", "-p", path)
            self.inside("mount", "--bind", f"/run/lent{number}", path)

    def order(self, word: str) -> str:
        self.init.stdin.write(f"{word}\n")
        self.init.stdin.flush()
        return self.init.stdout.readline().strip()

    def start(self) -> None:
        """Starts its sshd."""
        self.sshd = int(self.order("start"))
        wait_for("sshd", lambda: ":0016 " in self.inside("cat", "/proc/net/tcp"))

    def sessions(self) -> list[int]:
        """Processes of sshd, as this machine counts them."""
        return [pid for pid, words in self.processes() if words.startswith("sshd")]

    def kill_sshd(self) -> None:
        """kill -9 of sshd and all of its sessions; what they started is left alone."""
        for pid, words in self.processes():
            if words.split(" ")[0] in (str(SSHD), "sshd:", "sshd"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def cut(self) -> None:
        """Pulls the cable out."""
        run("ip", "link", "set", self.cable, "down")

    def mend(self) -> None:
        run("ip", "link", "set", self.cable, "up")

    def halt(self) -> None:
        """Switches the machine off: nothing of it runs on."""
        if self.init is not None:
            self.init.kill()
            self.init.wait()
            subprocess.run(["ip", "link", "delete", self.cable], capture_output=True)
            self.init = None

    def processes(self) -> list[tuple[int, str]]:
        """All of its processes: their numbers here, and their words."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if os.readlink(entry / "ns/pid") == space:
                        words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        found.append((int(entry.name), words))
        return found

    def ours(self) -> list[str]:
        """What of ours runs there."""
        return [words for _, words in self.processes() if "trainyard-machine" in words or "program node" in words]

    def files(self) -> list[str]:
        """What is in the user's home directory."""
        return sorted(str(path.relative_to(self.home)) for path in self.home.rglob("*"))

    def mounted(self) -> list[str]:
        """What is mounted in the user's home directory."""
        places = [line.split()[4] for line in self.inside("cat", "/proc/self/mountinfo").splitlines()]
        return [place for place in places if place.startswith(f"{self.home}/")]

    def listening(self) -> list[int]:
        """The ports of its loopback on which somebody listens."""
        lines = [line.split() for line in self.inside("cat", "/proc/net/tcp").splitlines()[1:]]
        ports = [line[1] for line in lines if line[3] == "0A" and line[1].startswith("0100007F")]
        return [int(port.split(":")[1], 16) for port in ports]


class Lan:
    """Some machines, and a user here who knows them."""

    def __init__(self, folder: pathlib.Path):
        # those of pytest are closed to others, and the machines' users go through them
        self.folder = folder
        for path in [folder, *list(folder.parents)[:-2]]:
            if path.stat().st_uid == os.geteuid() and str(path) != "/":
                path.chmod(path.stat().st_mode | 0o711)
        self.user = folder / "me"
        (self.user / ".sky").mkdir(parents=True)
        self.key = folder / "key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        self.known = folder / "known_hosts"
        self.known.touch()
        self.config = self.user / ".ssh/config"
        self.config.parent.mkdir(mode=0o700)
        self.config.write_text(f"Host *\n  UserKnownHostsFile {self.known}\n  GlobalKnownHostsFile none\n")
        # ssh takes its configuration from the account's home, not from HOME
        program = folder / "bin/ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        program.chmod(0o755)
        self.env = {"HOME": str(self.user), "PATH": f"{program.parent}:{os.environ['PATH']}"}
        self.hosts: list[Host] = []

    def host(self, **options: str) -> Host:
        host = Host(self.folder / f"h{len(self.hosts)}", self.key, len(self.hosts), **options)
        self.hosts.append(host)
        host.boot()
        self.know(host)
        return host

    def join(self) -> None:
        """Lays a cable between each two of the machines: they reach one another at the addresses that they have here."""
        for one, two in itertools.combinations(self.hosts, 2):
            ends = (f"to{two.number}", f"to{one.number}")
            run("ip", "link", "add", ends[0], "netns", one.pid, "type", "veth", "peer", "name", ends[1], "netns", two.pid)
            for host, other, end in ((one, two, ends[0]), (two, one, ends[1])):
                host.inside("ip", "link", "set", end, "up")
                host.inside("ip", "route", "add", f"{other.address}/32", "dev", end, "src", host.address)

    def know(self, host: Host, key: pathlib.Path | None = None) -> None:
        """Writes down the host's key, or another one as if it were."""
        lines = [line for line in self.known.read_text().splitlines() if not line.startswith(f"{host.address} ")]
        words = pathlib.Path(f"{key or host.host_key}.pub").read_text().split()
        self.known.write_text("\n".join([*lines, f"{host.address} {words[0]} {words[1]}"]) + "\n")

    def pools(self, text: str) -> None:
        (self.user / ".sky/ssh_node_pools.yaml").write_text(text)

    def pool(self, name: str, *hosts: Host, key: pathlib.Path | None = None) -> str:
        listed = "".join(f"  - ip: {host.address}\n" for host in hosts)
        return f"{name}:\n  user: {USER}\n  identity_file: {key or self.key}\n  hosts:\n{listed}"

    def end(self) -> None:
        for host in self.hosts:
            host.halt()
