"""What a home holds outlives: older and newer programs, backups, many starts at once, full disks, and kill -9 under load.

`SOAK_KILLS` says how often the control plane is killed (20; `make soak`: 200), `SEED` how chance begins.
"""

import base64
import gzip
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import sqlite3
import ssl
import stat
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from conftest import BINARY, Yard, plain_runtime, stop, wait_for

HOMES = pathlib.Path(__file__).parent / "homes"
MAPS = "/api/v1/namespaces/default/configmaps"
PRINTS = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
n = 0
print("start", flush=True)
while time.monotonic() < end:
    n += 1
    print("line", n, "x" * 200, flush=True)
    time.sleep(0.01)
sys.exit(int(sys.argv[2]))
"""


class Http:
    """Requests to a control plane, fast: one connection, opened again where it breaks."""

    def __init__(self, yard: Yard):
        text = (yard.home / "kubeconfig").read_text()
        found = {key: re.search(rf"{key}: *\"?([^\s\"]+)", text)[1] for key in ("server", "token", "certificate-authority-data")}
        self.address = found["server"].removeprefix("https://")
        self.token = found["token"]
        self.tls = ssl.create_default_context(cadata=base64.b64decode(found["certificate-authority-data"]).decode())
        self.connection: http.client.HTTPSConnection | None = None

    def open(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.address, context=self.tls, timeout=30)

    def send(self, connection: http.client.HTTPSConnection, method: str, path: str, body: object = None) -> http.client.HTTPResponse:
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": media}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection.getresponse()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Status and text; status 0 where there was no answer."""
        try:
            self.connection = self.connection or self.open()
            answer = self.send(self.connection, method, path, body)
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            self.connection = None
            return 0, ""


def config_map(name: str, **data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def revision(text: str) -> int:
    return int(json.loads(text)["metadata"]["resourceVersion"])


@pytest.fixture
def home(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder for a home; what runs in it ends with the test."""
    path = tmp_path / "home"
    yield path
    ghost = Yard.__new__(Yard)
    ghost.home, ghost.env = path, {**os.environ, "TRAINYARD_HOME": str(path)}
    stop(ghost)


def old_home(home: pathlib.Path) -> pathlib.Path:
    """A home as commit d2838bf left it, with a job that is complete: its database is of format 1."""
    home.mkdir(mode=0o700)
    (home / "store.db").write_bytes(gzip.decompress((HOMES / "format-1.db.gz").read_bytes()))
    return home


def test_an_older_home_is_migrated_and_a_newer_one_refused(home: pathlib.Path):
    yard = Yard(old_home(home))
    assert yard.job("old-done")["status"]["conditions"][-1]["type"] == "Complete"
    assert json.loads(yard.kubectl("get", "configmap", "kept", "-o", "json").stdout)["data"] == {"a": "b"}
    yard.kubectl("create", "configmap", "new")
    yard.down()
    database = sqlite3.connect(home / "store.db")
    assert dict(database.execute("SELECT key, value FROM meta"))["layout"] == 2
    database.execute("UPDATE meta SET value = 9 WHERE key = 'layout'")
    database.execute("UPDATE meta SET value = '7.0.0' WHERE key = 'writer'")
    database.commit()
    database.close()
    refused = yard.run("up", "--detach", check=False)
    assert refused.returncode != 0 and "written by trainyard 7.0.0 in format 9" in refused.stderr, refused.stderr
    assert "restore" in refused.stderr


@pytest.mark.parametrize("state", ["missing", "empty"])
def test_a_lost_database_is_refused(home: pathlib.Path, state: str):
    """An empty one would end the pods that still run, as those of no job."""
    yard = Yard(home)
    yard.run("run", "--detach", "--name", "long", "--runtime", "plain", "--", "sleep", "600")
    wait_for("the job to run", lambda: "Running" in yard.kubectl("get", "pods", "--no-headers").stdout)
    yard.down()
    database = (home / "store.db").read_bytes()
    (home / "store.db").unlink()
    if state == "empty":
        (home / "store.db").touch()
    refused = yard.run("up", "--detach", check=False)
    assert refused.returncode != 0 and "TY0403" in refused.stderr and "restore" in refused.stderr, refused.stderr
    (home / "store.db").write_bytes(database)
    yard.up()
    assert yard.kubectl("get", "pods", "--no-headers").stdout.split()[2] == "Running"


def damage(home: pathlib.Path, name: str) -> None:
    """One bit of a stored ConfigMap, which is still JSON."""
    database = sqlite3.connect(home / "store.db")
    (value,) = database.execute("SELECT value FROM objects WHERE name = ?", (name,)).fetchone()
    database.execute("UPDATE objects SET value = ? WHERE name = ?", (value.replace(b"value-of-it", b"walue-of-it"), name))
    database.commit()
    database.close()


def damaged(yard: Yard, *words: str) -> list[dict]:
    told = json.loads(yard.run("damaged", "-o", "json", *words).stdout)
    return told["forgotten" if words else "items"]


def test_damaged_objects_are_listed_and_dropped(home: pathlib.Path):
    yard = Yard(home, "--no-node", "--controllers", "none")
    names = ("one", "two", "three", "four")
    for name in (*names, "whole"):
        yard.kubectl("create", "configmap", name, "--from-literal=key=value-of-it")
    assert damaged(yard) == []
    revision = json.loads(yard.kubectl("get", "configmap", "one", "-o", "json").stdout)["metadata"]["resourceVersion"]
    yard.down()
    for name in names:
        damage(home, name)
    # the files of a control plane that does not run
    found = damaged(yard)
    assert sorted(row["name"] for row in found) == sorted(names)
    assert next(row for row in found if row["name"] == "one") == {
        "bucket": "/configmaps", "namespace": "default", "name": "one", "revision": int(revision), "why": "its checksum is wrong",
    }  # fmt: skip
    assert [row["name"] for row in damaged(yard, "--forget", "configmaps/one")] == ["one"]
    missing = yard.run("damaged", "--forget", "configmaps/two", "configmaps/one", check=False)
    assert missing.returncode != 0 and missing.stderr.startswith("error[TY0507]: "), missing
    # and one that does
    yard.up()
    http = Http(yard)
    assert sorted(row["name"] for row in damaged(yard)) == ["four", "three", "two"]
    assert "configmaps/two" in yard.run("damaged").stdout
    yard.kubectl("create", "configmap", "three")
    assert [row["name"] for row in damaged(yard, "--forget", "configmaps/two")] == ["two"]
    assert "(1 damaged and set aside: /configmaps/default/four)" in http.ask("GET", "/readyz?verbose")[1]
    assert [row["name"] for row in damaged(yard, "--all", "-n", "other")] == []
    assert [row["name"] for row in damaged(yard, "--all")] == ["four"]
    assert "[+]stored-objects ok\n" in http.ask("GET", "/readyz?verbose")[1]
    # for ever, and nothing else
    yard.kill()
    yard.up()
    http = Http(yard)
    assert damaged(yard) == []
    assert [http.ask("GET", f"{MAPS}/{name}")[0] for name in (*names, "whole")] == [404, 404, 200, 404, 200]
    yard.down()


def test_a_home_whose_restore_was_interrupted_is_not_backed_up(home: pathlib.Path, tmp_path: pathlib.Path):
    yard = Yard(home, "--no-node", "--controllers", "none")
    yard.down()
    (home / "restore-unfinished").mkdir()
    for words in (["backup", str(tmp_path / "b")], ["damaged"]):
        refused = yard.run(*words, check=False)
        assert refused.returncode != 0 and refused.stderr.startswith("error[TY0501]: "), refused.stderr
    assert not (tmp_path / "b").exists()


def test_a_damaged_object_is_named_and_the_rest_is_served(home: pathlib.Path):
    yard = Yard(home, "--no-node", "--controllers", "none")
    for name in ("one", "two"):
        yard.kubectl("create", "configmap", name, "--from-literal=key=value-of-it")
    yard.down()
    damage(home, "one")
    yard.up()
    http = Http(yard)
    assert http.ask("GET", f"{MAPS}/one")[0] == 404 and http.ask("GET", f"{MAPS}/two")[0] == 200
    code, text = http.ask("GET", "/readyz?verbose")
    assert code == 200 and "[+]stored-objects ok (1 damaged and set aside: /configmaps/default/one)" in text, text
    assert "configmaps default one" in re.sub(r"[^a-z ]+", " ", (home / "up.log").read_text()).replace("  ", " ") or "one" in (
        home / "up.log"
    ).read_text()
    doctor = json.loads(yard.run("doctor", "-o", "json", check=False).stdout)
    assert "configmaps/default/one" in json.dumps(doctor), doctor


def test_twelve_starts_at_once_find_the_winner(home: pathlib.Path):
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    (home / "theirs.txt").write_text("not ours")
    (home / "theirs.txt").chmod(0o644)
    env = {**os.environ, "TRAINYARD_HOME": str(home)}
    starts = [
        subprocess.Popen([BINARY, "up", "--detach", "-o", "json"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(12)
    ]
    answers = [start.communicate(timeout=120) for start in starts]
    assert all(start.returncode == 0 for start in starts), answers
    winners = {(json.loads(out)["pid"], json.loads(out)["server"]) for out, _ in answers}
    assert len(winners) == 1, winners
    [(pid, _)] = winners
    assert os.getsid(pid) == pid, "no signal of the terminal that started it reaches it"
    assert stat.S_IMODE(home.stat().st_mode) == 0o755 and stat.S_IMODE((home / "theirs.txt").stat().st_mode) == 0o644
    # nothing of ours is for others: files, and what folders hold
    for path in home.iterdir():
        mode = stat.S_IMODE(path.stat().st_mode)
        assert path.name == "theirs.txt" or mode & 0o077 == 0, f"{path}: {mode:o}"


def test_no_secret_is_in_any_process_arguments(home: pathlib.Path, tmp_path: pathlib.Path):
    yard = Yard(home)
    yard.down()
    # given in the arguments, it leaves them as the program starts
    words = [BINARY, "up", "--token=correct-horse-battery-staple"]
    with (tmp_path / "up.log").open("wb") as log:
        subprocess.Popen(words, env=yard.env, stdout=log, stderr=log, start_new_session=True)
    status = lambda: json.loads(yard.run("status", "-o", "json", check=False).stdout)
    yard.running = wait_for("it to run", lambda: (told := status())["running"] and told)
    assert "correct-horse-battery-staple" in (home / "kubeconfig").read_text()
    yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("plain")))
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    yard.run("run", "--detach", "--runtime", "plain", "--name", "shown", "--env", "PASSWORD=open-sesame", str(script), "20", "0")
    yard.run("wait", "shown", "--for", "running", "--timeout", "60s")
    secrets = [b"correct-horse-battery-staple", b"open-sesame"]
    secrets += [(home / name).read_bytes().strip() for name in ("serviceaccounts.key", "pki/ca.key")]
    seen = 0
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            seen += str(home).encode() in words
            assert not [secret for secret in secrets if secret in words], words
    assert seen >= 2, "the control plane and the shim name their home"


def test_a_backup_is_restored(yard: Yard, plain: str, tmp_path: pathlib.Path, home: pathlib.Path):
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    yard.run("run", "--detach", "--runtime", plain, "--name", "ended", str(script), "0.2", "0")
    yard.run("wait", "ended", "--timeout", "60s")
    yard.run("run", "--detach", "--runtime", plain, "--name", "goes-on", str(script), "600", "0")
    yard.run("wait", "goes-on", "--for", "running", "--timeout", "60s")
    file = tmp_path / "yard.backup"
    http = Http(yard)
    stopped = threading.Event()

    def writes():
        busy, n = Http(yard), 0
        while not stopped.is_set():
            n += 1
            busy.ask("POST", MAPS, config_map(f"left-{n}"))
            busy.ask("POST", MAPS, config_map(f"right-{n}"))

    writer = threading.Thread(target=writes)
    writer.start()
    try:
        told = json.loads(yard.run("backup", str(file), "-o", "json").stdout)
    finally:
        stopped.set()
        writer.join()
    assert told == {"file": str(file), "bytes": file.stat().st_size} and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert yard.run("backup", str(file), check=False).returncode == 2, "it is there already"
    assert [path.name for path in tmp_path.iterdir() if "yard.backup" in path.name] == ["yard.backup"]

    # what comes later is not in it
    yard.run("delete", "ended")
    yard.run("run", "--detach", "--runtime", plain, "--name", "later", str(script), "600", "0")
    yard.run("wait", "later", "--for", "running", "--timeout", "60s")
    code, text = http.ask("POST", MAPS, config_map("later"))
    assert code == 201
    newest = revision(text)
    busy = yard.run("restore", str(file), "--force", check=False)
    assert busy.returncode == 2 and "trainyard down" in busy.stderr, busy.stderr
    yard.run("down")
    over = yard.run("restore", str(file), check=False)
    assert over.returncode == 2 and "--force" in over.stderr, over.stderr
    broken = tmp_path / "broken.backup"
    broken.write_bytes(file.read_bytes()[:-2000])
    assert yard.run("restore", str(broken), "--force", check=False).returncode != 0
    told = json.loads(yard.run("restore", str(file), "--force", "-o", "json").stdout)
    assert told["revision"] > newest
    yard.up()

    jobs = {job["metadata"]["name"]: job for job in json.loads(yard.run("get", "-o", "json").stdout)["items"]}
    assert set(jobs) == {"ended", "goes-on"}
    assert jobs["ended"]["status"]["conditions"][-1]["type"] == "Complete"
    # who ran before the backup goes on, untouched; who came later is ended
    assert yard.run("logs", "goes-on", "--no-prefix").stdout.count("start\n") == 1
    here = [f"{script}\x00600".encode()]
    wait_for("the process of the later job to end", lambda: len(processes(here[0])) == 1, 60)
    http = Http(yard)
    names = [item["metadata"]["name"] for item in json.loads(http.ask("GET", MAPS)[1])["items"]]
    left = {name.removeprefix("left-") for name in names if name.startswith("left-")}
    right = {name.removeprefix("right-") for name in names if name.startswith("right-")}
    assert right <= left and len(left) - len(right) <= 1 and "later" not in names
    # a client that remembers a later state gets an error, and a write comes after all that it has seen
    assert http.ask("GET", f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion={newest}")[1].find('"code":410') > 0
    assert revision(http.ask("POST", MAPS, config_map("after"))[1]) > newest

    # elsewhere, where nothing runs: the job that ran starts anew or fails, but is reported
    other = {**yard.env, "TRAINYARD_HOME": str(home)}
    assert yard.run("restore", str(file), env=other).returncode == 0
    assert not (home / "restore-unfinished").exists()
    yard.run("delete", "goes-on")


def processes(words: bytes) -> list[bytes]:
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if words in text and b"python" in text.split(b"\0")[0]:
                found.append(text)
    return found


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A disk of 24 MiB."""
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], check=True)
    yield disk
    ghost = Yard.__new__(Yard)
    ghost.home, ghost.env = disk / "home", {**os.environ, "TRAINYARD_HOME": str(disk / "home")}
    stop(ghost)
    wait_for("the disk to be unused", lambda: subprocess.run(["umount", disk], capture_output=True).returncode == 0)


def fill(disk: pathlib.Path) -> pathlib.Path:
    """Takes all room there is."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(b"\0" * size)
            except OSError:
                size //= 2
    assert shutil.disk_usage(disk).free == 0
    return ballast


@pytest.mark.timeout(240)
def test_a_full_disk_refuses_writes_and_harms_no_job(small_disk: pathlib.Path, tmp_path: pathlib.Path):
    yard = Yard(small_disk / "home")
    yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("plain")))
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    yard.run("run", "--detach", "--runtime", "plain", "--name", "ends-meanwhile", str(script), "8", "3")
    yard.run("run", "--detach", "--runtime", "plain", "--name", "goes-on", str(script), "600", "0")
    for name in ("ends-meanwhile", "goes-on"):
        yard.run("wait", name, "--for", "running", "--timeout", "60s")
    http = Http(yard)
    ballast = fill(small_disk)

    def refused() -> str:
        # the database's log has some room of its own
        code, text = http.ask("POST", MAPS, config_map(f"m-{random.random()}", text="x" * 500_000))
        return text if code == 507 else ""

    text = wait_for("writes to be refused", refused)
    assert "disk is full" in text and "make room" in text, text
    code, text = http.ask("GET", "/readyz")
    assert code == 500 and "[-]etcd failed: the disk is full" in text, text
    assert http.ask("GET", "/livez")[0] == 200 and http.ask("GET", MAPS)[0] == 200
    assert "trainyard_store_writable 0" in http.ask("GET", "/metrics")[1]
    backup = yard.run("backup", str(tmp_path / "yard.backup"), check=False)
    assert backup.returncode == 1 and "disk is full" in backup.stderr, backup.stderr
    assert not (yard.home / "store.db.backup").exists(), "what was written of it takes the room that there is"

    wait_for("the first job's process to end", lambda: not processes(f"{script}\x008\x00".encode()), 60)
    assert processes(f"{script}\x00600".encode()), "a running job was harmed"
    fill(small_disk)
    assert http.ask("GET", "/readyz")[0] == 500

    ballast.unlink()
    wait_for("the server to be ready", lambda: http.ask("GET", "/readyz")[0] == 200, 30)
    assert yard.run("status", "-o", "json").stdout.count(f'"pid": {yard.running["pid"]}') == 1, "it was started again"
    yard.run("wait", "ends-meanwhile", "--for", "finished", "--timeout", "60s", check=False)
    assert "exit code 3" in yard.run("describe", "ends-meanwhile").stdout
    before = yard.run("logs", "goes-on", "--no-prefix").stdout.count("\n")
    wait_for("lines to be kept again", lambda: yard.run("logs", "goes-on", "--no-prefix").stdout.count("\n") > before)
    assert http.ask("POST", MAPS, config_map("room"))[0] == 201


@pytest.mark.timeout(3600)
def test_kills_under_mixed_load_lose_nothing(yard: Yard, plain: str, tmp_path: pathlib.Path):
    kills, seed = int(os.environ.get("SOAK_KILLS", "20")), int(os.environ.get("SEED", "1"))
    print(f"SOAK_KILLS={kills} SEED={seed}")
    chance = random.Random(seed)
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    yard.run("run", "--detach", "--runtime", plain, "--nodes", "2", "--name", "throughout", str(script), "3500", "0")
    yard.run("wait", "throughout", "--for", "running", "--timeout", "60s")
    stopped = threading.Event()
    faults: list[str] = []
    # by name: revision and value of what was acknowledged last; None where it is deleted
    known: list[dict[str, tuple[int, str] | None]] = [{} for _ in range(4)]
    # changes without an answer may have happened or not
    unsure: list[dict[str, list[str | None]]] = [{} for _ in range(4)]
    acknowledged = [0] * 4

    def write(worker: int):
        dice, mine, maybe = random.Random(f"{seed}-{worker}"), known[worker], unsure[worker]
        http, highest, n, life = Http(yard), 0, 0, 0
        while not stopped.is_set():
            n += 1
            name, value = f"w{worker}-{life}-{dice.randrange(20)}", str(n)
            there = mine.get(name)
            if there is None:
                asked, expected, new = http.ask("POST", MAPS, config_map(name, n=value)), 201, value
            elif dice.random() < 0.3:
                asked, expected, new = http.ask("DELETE", f"{MAPS}/{name}"), 200, None
            else:
                asked, expected, new = http.ask("PATCH", f"{MAPS}/{name}", {"data": {"n": value}}), 200, value
            code, text = asked
            if code == expected:
                acknowledged[worker] += 1
                if new is None:
                    mine[name] = None
                else:
                    mine[name] = (revision(text), value)
                    if mine[name][0] <= highest:
                        faults.append(f"{name}: revision {mine[name][0]} after {highest}")
                    highest = max(highest, mine[name][0])
            elif code == 0 or code >= 500:
                # this one is looked at in the end; others are written meanwhile
                maybe.setdefault(name, []).append(new)
                life += 1
                time.sleep(0.02)
            else:
                faults.append(f"{name}: {code} {text}")
                return

    def follow():
        """A watch that goes on where it was; revisions of an object only grow."""
        http, at = Http(yard), 0
        while not stopped.is_set():
            connection = http.open()
            try:
                if at == 0:
                    at = int(json.loads(http.send(connection, "GET", MAPS).read())["metadata"]["resourceVersion"])
                answer = http.send(connection, "GET", f"{MAPS}?watch=1&timeoutSeconds=5&resourceVersion={at}")
                for line in answer:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        at = 0
                        break
                    now = int(event["object"]["metadata"]["resourceVersion"])
                    if now <= at:
                        faults.append(f"the watch went back from {at} to {now}")
                    at = now
            except (OSError, ValueError, http_errors):
                time.sleep(0.02)
            finally:
                connection.close()

    http_errors = http.client.HTTPException
    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)] + [threading.Thread(target=follow)]
    for thread in threads:
        thread.start()
    begin = time.monotonic()
    try:
        for _ in range(kills):
            seen = sum(acknowledged)
            target = seen + chance.randint(5, 60)
            wait_for("writes to go through", lambda: faults or sum(acknowledged) >= target, 60)
            yard.kill()
            yard.up()
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert not faults, faults[:5]
    there = {item["metadata"]["name"]: item for item in json.loads(Http(yard).ask("GET", MAPS)[1])["items"]}
    for mine, maybe in zip(known, unsure, strict=True):
        for name in mine.keys() | maybe.keys():
            found = there.get(name, {}).get("data", {}).get("n")
            last = mine.get(name)
            allowed = [last[1] if last else None, *maybe.get(name, [])]
            assert found in allowed, f"{name}: {found}, and not one of {allowed}"
    logs = [yard.run("logs", "throughout", "--rank", rank, "--no-prefix").stdout for rank in ("0", "1")]
    assert [text.splitlines().count("start") for text in logs] == [1, 1], "a rank was started twice"
    yard.run("delete", "throughout")
    seconds = time.monotonic() - begin
    print(f"{kills} kills, {sum(acknowledged)} acknowledged writes, {sum(map(len, unsure))} without an answer, {seconds:.0f} s")
    assert sum(acknowledged) >= 5 * kills
