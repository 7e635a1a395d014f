"""The wheel and the Debian package of `dist/`, installed into clean environments. `make wheel deb` builds them."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import BINARY, ROOT

DIST = pathlib.Path(os.environ.get("TRAINYARD_DIST", ROOT / "dist"))


def the_only(pattern: str) -> pathlib.Path:
    found = sorted(DIST.glob(pattern))
    assert len(found) == 1, f"{DIST} has {found}: run `make wheel deb` (after `rm -r dist`, if there are several)"
    return found[0]


def run(*words: object, **options) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def version() -> str:
    return run(BINARY, "--version")


def a_control_plane_starts(program: pathlib.Path, home: pathlib.Path, *before: str) -> None:
    """The installed program finds itself again when it starts its background process."""
    words = [*before, str(program), "--home", str(home)]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home.parent)}
    try:
        run(*words, "up", "--detach", "--no-node", env=env)
        assert "torch-distributed" in run(*words, "runtimes", env=env)
    finally:
        run(*words, "down", env=env)


def test_pip_installs_the_wheel(tmp_path: pathlib.Path, version: str):
    wheel = the_only("trainyard-*.whl")
    assert "-py3-none-manylinux" in wheel.name
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    run(tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel)
    program = tmp_path / "venv/bin/trainyard"
    assert run(program, "--version") == version
    a_control_plane_starts(program, tmp_path / "home")


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed (packaging/requirements.txt)")
def test_uv_installs_the_wheel_as_a_tool(tmp_path: pathlib.Path, version: str):
    env = {
        **os.environ, "HOME": str(tmp_path), "UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_OFFLINE": "1", "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON_DOWNLOADS": "never",
    }  # fmt: skip
    run("uv", "tool", "install", "--quiet", "--python", sys.executable, the_only("trainyard-*.whl"), env=env)
    assert run(tmp_path / "bin/trainyard", "--version", env=env) == version
    run("uv", "tool", "uninstall", "--quiet", "trainyard", env=env)
    assert not (tmp_path / "bin/trainyard").exists()


@pytest.mark.skipif(shutil.which("maturin") is None, reason="maturin is not installed (packaging/requirements.txt)")
def test_a_source_distribution_has_all_that_is_built(tmp_path: pathlib.Path):
    """What `uv build` makes the wheel from; the workspace in it stands by itself."""
    run("maturin", "sdist", "--out", tmp_path, cwd=ROOT)
    (archive,) = tmp_path.glob("trainyard-*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    run("cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--no-deps", cwd=folder)
    sources = (ROOT / "crates").rglob("*.rs")
    included = {(source, name) for source in sources for name in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', source.read_text())}
    needed = {(source.parent / name).resolve().relative_to(ROOT.resolve()) for source, name in included}
    needed |= {path.relative_to(ROOT) for path in (ROOT / "manifests").rglob("*.yaml")}
    absent = {str(path) for path in needed if not (folder / path).exists()}
    # crates that the binary does not have (tools, what is only begun) are not part of it
    built = {path for path in absent if not path.startswith("crates/") or (folder / "/".join(path.split("/")[:2])).exists()}
    assert not built


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    """A root folder with what the binary is linked with and nothing else; dpkg takes it for this machine."""
    if os.getuid() != 0 or not shutil.which("dpkg") or not shutil.which("chroot"):
        pytest.skip("only root on Debian or its like installs Debian packages")
    root = tmp_path / "root"
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    (root / "var/lib/dpkg/updates").mkdir()
    (root / "tmp").mkdir()
    shutil.copy("/var/lib/dpkg/status", root / "var/lib/dpkg/status")
    for line in run("ldd", BINARY).splitlines():
        for path in re.findall(r"(/\S+)", line):
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, root / path.lstrip("/"))
    return root


def test_dpkg_installs_the_package(root: pathlib.Path, version: str):
    package = the_only("trainyard_*.deb")
    run("dpkg", f"--root={root}", "--install", package)
    assert "Status: install ok installed" in run("dpkg", f"--root={root}", "--status", "trainyard")
    assert run("chroot", root, "/usr/bin/trainyard", "--version") == version
    for file in [
        "man/man1/trainyard-run.1.gz", "bash-completion/completions/trainyard", "zsh/vendor-completions/_trainyard",
        "bash-completion/completions/sky", "fish/vendor_completions.d/trainyard.fish", "fish/vendor_completions.d/sky.fish",
        "doc/trainyard/copyright",
    ]:  # fmt: skip
        assert (root / "usr/share" / file).exists(), file
    run("dpkg", f"--root={root}", "--remove", "trainyard")
    assert not (root / "usr/bin/trainyard").exists()


def test_the_package_says_what_the_binary_needs(root: pathlib.Path):
    """Without the C library dpkg refuses to configure it."""
    (root / "var/lib/dpkg/status").write_text("")
    words = ["dpkg", f"--root={root}", "--install", str(the_only("trainyard_*.deb"))]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode != 0 and "libc6" in done.stderr
