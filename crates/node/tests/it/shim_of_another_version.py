"""A shim of another version, for the tests of upgrades: python shim_of_another_version.py POD-DIRECTORY PROTOCOL PROGRAM...

Runs one program as the pod's only container, and does with the pod's directory what a shim of that version does: lock, journal, socket.
Version 1 is that of the shims before versions were written down; any other writes its number, and a record that nobody else knows.
Every request that comes is noted in `requests`, a line each.
"""

import datetime
import fcntl
import json
import os
import selectors
import signal
import socket
import subprocess
import sys

folder, protocol, program = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
os.chdir(folder)
lock = open("lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
journal = open("journal.jsonl", "a")
requests = open("requests", "a")
clients = []


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")


def record(event, **members):
    journal.write(json.dumps({"at": now(), "event": event, **members}) + "\n")
    journal.flush()
    for client in clients:
        client.send(b"\n")


listener = socket.socket(socket.AF_UNIX)
listener.bind("sock")
listener.listen()
boot_id = open("/proc/sys/kernel/random/boot_id").read().strip()
record("taken", pid=os.getpid(), bootId=boot_id)
if protocol > 1:
    record("somethingNew", about={"container": "node"})
started_at = now()
child = subprocess.Popen(program, start_new_session=True)
record("running", container="node", attempt=0, pid=child.pid)
wakes, wake = os.pipe()
os.set_blocking(wake, False)
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.set_wakeup_fd(wake)
print("ready", flush=True)

selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
selector.register(wakes, selectors.EVENT_READ)
while child.poll() is None:
    for key, _ in selector.select():
        if key.fileobj is listener:
            client, _ = listener.accept()
            clients.append(client)
            selector.register(client, selectors.EVENT_READ)
        elif key.fileobj == wakes:
            os.read(wakes, 100)
        else:
            text = key.fileobj.recv(65536)
            if not text:
                selector.unregister(key.fileobj)
                clients.remove(key.fileobj)
            for line in text.decode().splitlines():
                requests.write(line + "\n")
                requests.flush()
                asked = json.loads(line)
                # one that it does not know ends the connection: so did version 1
                assert asked["op"] in ("Subscribe", "subscribe", "stop", "kill", "started", "exec"), line
                if asked["op"] == "stop":
                    record("stopping", why="deleted", graceSecs=asked["graceSecs"])
                    child.terminate()
code = child.returncode if child.returncode >= 0 else 128 - child.returncode
reason = "Completed" if code == 0 else "Error"
record("exited", container="node", attempt=0, exit={"code": code, "reason": reason, "startedAt": started_at, "finishedAt": now()})
record("finished")
