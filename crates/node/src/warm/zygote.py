"""Waits with the framework imported, and forks the ranks of warm runs.

    python zygote.py SOCKET IDLE-SECONDS MODULE...

Imports the modules, listens on SOCKET, prints one line of JSON ({"ready": true} or
{"error": ...}), and ends when its standard input does, when nobody has asked for that many seconds, or when something
that it has imported is no longer as it was.

For each connection there are two processes. The guardian, a fork of this one, is the parent of all that the rank starts:
it tells the launcher how the rank ends, hands on signals, and kills what is left when the launcher hangs up. The rank, a
fork of the guardian, enters the pod's namespaces, takes over its environment and its streams, and runs the script.

A request: eight bytes of length (little-endian) that come with the descriptors, then JSON {"argv", "env", "folder",
"namespaces"}; the descriptors are stdin, stdout, stderr and one for each of "namespaces". Answers are lines of JSON:
{"pid": N} when the rank is ready, {"cold": WHY} if it cannot be, {"exited": CODE, "signal": N or 0, "at": SECONDS} when
it has ended. After {"pid"}, each byte from the launcher is a signal for the rank, and the byte 0 lets it go.
"""

import ctypes
import gc
import importlib
import importlib.machinery
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import types

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
CAPABILITY_VERSION_3 = 0x20080522
libc = ctypes.CDLL(None, use_errno=True)


def checked(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def state_of(path):
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino, about.st_mtime_ns


def imported():
    """What this process depends on, and its state: the files of all modules, and the folders in which packages are installed."""
    paths = {sys.executable, os.path.join(sys.prefix, "pyvenv.cfg")}
    paths.update(path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages"))
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and os.path.isabs(path):
            paths.add(path)
    return {path: state_of(path) for path in paths}


def changed(known):
    return next((path for path, state in known.items() if state_of(path) != state), None)


def tell(connection, **answer):
    try:
        connection.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        pass  # the launcher is gone; what follows is the same


def receive(connection):
    """A request and its descriptors."""
    connection.settimeout(10)
    head, descriptors, _, _ = socket.recv_fds(connection, 8, 16)
    if len(head) != 8:
        raise ValueError("not a request")
    text = b""
    while len(text) < int.from_bytes(head, "little"):
        part = connection.recv(1 << 20)
        if not part:
            raise ValueError("half a request")
        text += part
    connection.settimeout(None)
    return json.loads(text), descriptors


def serve(listener, idle):
    """Forks a guardian for each connection. Returns only in a rank, with its request."""
    known = imported()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guardians are not waited for
    while True:
        ready, _, _ = select.select([listener, 0], [], [], idle)
        if listener not in ready:
            os._exit(0)
        connection, _ = listener.accept()
        descriptors = []
        try:
            request, descriptors = receive(connection)
            path = changed(known)
            if path is not None:
                tell(connection, cold=f"{path} has changed", again=True)
                os._exit(0)
            if os.fork() == 0:
                listener.close()
                guard(connection, request, descriptors, known)
                return request
        except (OSError, ValueError) as error:
            tell(connection, cold=str(error))
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)


def guard(connection, request, descriptors, known):
    """The guardian. Returns only in the rank, which is ready to run."""
    os.setsid()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    launcher, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    libc.prctl(PR_SET_NAME, b"warm %d" % launcher, 0, 0, 0)  # whose this is, for who looks for a pod's processes
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    said, saying = os.pipe()
    waiting, going = os.pipe()
    guardian = os.getpid()
    rank = os.fork()
    if rank == 0:
        connection.close()
        os.close(said)
        os.close(going)
        try:
            become(request, descriptors, known, guardian)
        except Exception as error:
            os.write(saying, str(error).encode() or b"unknown")
            os._exit(1)
        os.close(saying)
        if not os.read(waiting, 1):
            os._exit(1)
        os.closerange(3, max(waiting, null, *descriptors) + 1)
        return
    for descriptor in (*descriptors, saying, waiting):
        os.close(descriptor)
    with os.fdopen(said) as file:
        why = file.read()
    if why:
        os.waitpid(rank, 0)
        tell(connection, cold=why)
        os._exit(0)
    attend(connection, rank, going)


def attend(connection, rank, going):
    """Hands signals on and tells of the rank's end, until the launcher hangs up; then nothing of the rank is left."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    tell(connection, pid=rank)
    lives = True
    while True:
        ready, _, _ = select.select([connection, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == rank:
                lives = False
                by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                code = 128 + by if by else os.WEXITSTATUS(status)
                tell(connection, exited=code, signal=by, at=time.monotonic())
        if connection in ready:
            try:
                orders = connection.recv(64)
            except OSError:
                orders = b""
            if not orders:
                end_all()
                os._exit(0)
            for order in orders:
                if order == 0:
                    os.write(going, b"\n")
                elif lives:
                    os.kill(rank, order)


def end_all():
    """Kills the children, and the orphans that thereby become children, until there are none."""
    me = os.getpid()
    while True:
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    parent = int(file.read().rsplit(b")", 1)[1].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if parent == me and entry.isdigit():
                try:
                    os.kill(int(entry), signal.SIGKILL)
                except OSError:
                    pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def become(request, descriptors, known, guardian):
    """Makes this process what it would be had it been started in the pod."""
    os.setsid()
    enter(request["namespaces"], descriptors[3:])
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "death signal")
    libc.prctl(PR_SET_NAME, os.path.basename(sys.executable).encode(), 0, 0, 0)
    if os.getppid() != guardian:
        raise OSError("its guardian has died")
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
    environment = {name.encode(): value.encode() for name, value in request["env"].items()}
    for name in os.environb.keys() - environment.keys():
        del os.environb[name]
    os.environb.update(environment)
    time.tzset()
    os.chdir(request["folder"])
    script = request["argv"][0]
    if not os.path.isfile(script) or script.endswith(".pyc"):
        raise OSError(f"{script} is not a script")
    path = changed(known)
    if path is not None:
        raise OSError(f"{path} is another file in the pod")
    beside = os.path.dirname(os.path.realpath(script))
    if not getattr(sys.flags, "safe_path", False):
        refuse_shadows(beside)
        sys.path.insert(0, beside)
    # what was drawn when modules were imported must not be the same in all ranks
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
    sys.argv[:] = request["argv"]
    leave_shortly()


def leave_shortly():
    """Has this process end without the C exit handlers that it inherited: taking apart what libtorch registered when it was
    loaded takes longer than all the rest of the end. They come last of all: Python is finalized then, and the handlers of
    libraries that the script loaded have run, as handlers run in the reverse of the order in which they were registered."""
    if hasattr(libc, "on_exit") and hasattr(libc, "fcloseall"):  # GNU's alone
        for handler in (libc._exit, libc.fcloseall):  # the streams of C first, as exit() does
            checked(libc.on_exit(ctypes.cast(handler, ctypes.c_void_p), None), "exit handler")


def enter(names, descriptors):
    """Enters the namespaces that are not this process's own, the user's first: in it this process has the right to."""
    inside = False
    for name, descriptor in zip(names, descriptors):
        if os.fstat(descriptor).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            checked(libc.setns(descriptor, 0), f"the pod's {name} namespace")
            inside = inside or name == "user"
    if inside:
        if os.geteuid() != 0:  # no more rights than a program started there would have
            head = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
            checked(libc.capset(head, (ctypes.c_uint32 * 6)()), "capabilities")
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def refuse_shadows(folder):
    """A file beside the script goes before a module of that name; that is too late for one that is imported."""
    loaded = {name for name in sys.modules if "." not in name}
    for entry in os.scandir(folder):
        stem, dot, kind = entry.name.partition(".")
        is_module = kind == "py" or (kind.endswith("so") and dot)
        if stem in loaded and stem != "__main__":
            if is_module or (not dot and os.path.isfile(os.path.join(entry.path, "__init__.py"))):
                raise OSError(f"{entry.path} goes before the module {stem} that is imported already")


def run(path):
    """Runs the script as `python SCRIPT` does; the frames of this file are in no traceback."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=__builtins__)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    try:
        with open(path, "rb") as file:
            source = file.read()
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        sys.exit(1)


def start(path, idle, modules):
    """Imports and serves. Returns only in a rank, with its request."""
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this file's folder
    try:
        for module in modules:
            importlib.import_module(module)
        if threading.active_count() != 1:
            raise RuntimeError(f"importing {', '.join(modules)} starts threads, which a fork would not have")
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        os._exit(1)
    gc.collect()
    gc.freeze()  # what is shared with the ranks stays shared
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(os.path.dirname(path))  # a socket's path is limited to 107 bytes
    mask = os.umask(0o177)
    listener.bind(os.path.basename(path))
    os.umask(mask)
    listener.listen(64)
    os.chdir("/")
    print(json.dumps({"ready": True}), flush=True)
    os.dup2(2, 1)
    return serve(listener, idle)


if __name__ == "__main__":
    asked = start(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
    run(asked["argv"][0])
