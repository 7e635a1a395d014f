# What `trainyard run` asks a Python before it starts a job: what it is, what it can import, and whether a script is one. Nothing is
# imported or run. Valid from Python 3.5 on; older ones fail, which says enough.
#
#   python -c PROBE what FOLDER SCRIPT MODULES...
#
# what: `environment` (the interpreter and the modules), `script` (syntax and imports), or `both`.
import json
import os
import sys

what, folder, script, modules = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
answer = {}


def stamp(path):
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


if what != "script":
    import importlib.util
    import site

    sys.path[:] = [folder] + [path for path in sys.path if path]  # as if the script ran
    found = {}
    for module in modules:
        try:
            found[module] = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            found[module] = False
    watched = sys.path[1:]
    if getattr(site, "ENABLE_USER_SITE", False):
        watched.append(site.getusersitepackages())  # it may come to be
    library = os.path.dirname(os.__file__)
    own = sys.prefix == sys.base_prefix
    answer["environment"] = {
        "executable": sys.executable,
        "version": "%d.%d.%d" % sys.version_info[:3],
        "venv": None if own else sys.prefix,
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "managed": own and os.path.exists(os.path.join(library, "EXTERNALLY-MANAGED")),
        "modules": found,
        "watched": sorted({path: stamp(path) for path in watched}.items()),
    }

if what != "environment" and script:
    import ast

    FILES_MAX = 60
    fault, imports, files, waiting = None, set(), {}, [script]
    while waiting and len(files) < FILES_MAX:
        path = waiting.pop()
        if path in files:
            continue
        files[path] = stamp(path)
        try:
            with open(path, "rb") as opened:
                source = opened.read()
            if b"\0" in source:
                continue  # a zip archive, or no Python at all
            tree = compile(source, path, "exec", ast.PyCF_ONLY_AST, True)
            if path == script:
                compile(tree, path, "exec", 0, True)  # what only the compiler finds: `return` outside of a function
        except SyntaxError as error:
            if path == script:
                fault = {"line": error.lineno, "message": error.msg, "text": (error.text or "").strip()}
            continue
        except (OSError, ValueError, RecursionError, MemoryError):
            continue
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                # with the dots of `from .x import y` it is a file beside this one, too
                names.add(node.module)
            elif isinstance(node, ast.ImportFrom):
                names.update(alias.name for alias in node.names)
        for name in names:
            parts = name.split(".")
            here = [os.path.join(start, *parts) for start in {folder, os.path.dirname(path)}]
            local = [file for base in here for file in (base + ".py", os.path.join(base, "__init__.py")) if os.path.isfile(file)]
            waiting.extend(local)
            if not local:
                imports.add(parts[0])
    answer["script"] = {"fault": fault, "imports": sorted(imports), "files": sorted(files.items())}

print(json.dumps(answer))
