"""Installation: files where shells and man look for them, and shells that complete; each in a home of its own."""

import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from conftest import BINARY, ROOT, Yard, wait_for, write

SCRIPT = ROOT / "packaging/install.sh"
# bash's own call of a completion, without a terminal; by the function that is registered for the program
BASH = """
source "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
[[ $(complete -p "${2##*/}") =~ \\ -F\\ ([^ ]+)\\  ]]
"${BASH_REMATCH[1]}" "$2" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def install(prefix: pathlib.Path, **env: str) -> subprocess.CompletedProcess:
    words = [SCRIPT, "install", BINARY, prefix]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env})


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A prefix, with a blank in it."""
    prefix = tmp_path_factory.mktemp("install") / "my programs"
    done = install(prefix)
    assert done.returncode == 0, done.stderr
    return prefix


def completed(installed: pathlib.Path, *words: str, program: str = "trainyard", **env: str) -> list[str]:
    """What bash offers for the last word, after less than 200 ms, without a word on stderr."""
    script = installed / f"share/bash-completion/completions/{pathlib.Path(program).name}"
    path = f"{installed}/bin:{os.environ['PATH']}"
    best, began = 60.0, time.monotonic()
    # the machine may be busy with something else for a while
    while best >= 0.2 and time.monotonic() - began < 10:
        start = time.monotonic()
        done = subprocess.run(
            ["bash", "--norc", "-c", BASH, "bash", script, program, *words],
            capture_output=True, text=True, env={**os.environ, "PATH": path, **env},
        )  # fmt: skip
        best = min(best, time.monotonic() - start)
        assert done.stderr == ""
    assert best < 0.2, f"{words}: {best:.3f} s"
    return done.stdout.split()


def test_what_is_installed_can_be_removed(tmp_path: pathlib.Path):
    prefix = tmp_path / "p"
    told = install(prefix)
    assert f'export PATH="{prefix}/bin:$PATH"' in told.stdout
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
    assert {"bin/trainyard", "share/man/man1/trainyard.1", "share/man/man1/trainyard-run.1"} <= files
    assert "share/zsh/site-functions/_trainyard" in files
    completions = {"share/bash-completion/completions/sky", "share/fish/vendor_completions.d/sky.fish"}
    assert completions <= files
    version = subprocess.run([prefix / "bin/trainyard", "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith("trainyard ")

    again = install(prefix, PATH=f"{prefix}/bin:{os.environ['PATH']}")
    assert again.returncode == 0 and "export PATH" not in again.stdout
    assert {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()} == files

    gone = subprocess.run([SCRIPT, "uninstall", prefix], capture_output=True, text=True)
    assert gone.returncode == 0 and "removed" in gone.stdout
    assert [path for path in prefix.rglob("*") if path.is_file()] == []
    assert [path for path in prefix.rglob("*") if path.is_symlink()] == []
    nothing = subprocess.run([SCRIPT, "uninstall", prefix], capture_output=True, text=True)
    assert nothing.returncode == 1 and "nothing was removed" in nothing.stderr

    # the completion of another program named sky stays
    for file in completions:
        (prefix / file).write_text("theirs")
    assert install(prefix).returncode == 0
    subprocess.run([SCRIPT, "uninstall", prefix], capture_output=True, check=True)
    assert {(prefix / file).read_text() for file in completions} == {"theirs"}


def test_make_installs_below_home(tmp_path: pathlib.Path):
    """`make install` without the build: its second line."""
    env = {**os.environ, "HOME": str(tmp_path)}
    words = ["make", "--no-print-directory", "-C", ROOT, "install", "-o", "release", f"TRAINYARD={BINARY}"]
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".local/bin/trainyard").exists()
    homeless = subprocess.run(words, capture_output=True, text=True, env={**env, "HOME": ""})
    assert homeless.returncode != 0 and "PREFIX begins with /" in homeless.stderr
    assert not pathlib.Path("/.local").exists()


def test_every_command_has_a_page(installed: pathlib.Path):
    told = subprocess.run([installed / "bin/trainyard", "--help"], capture_output=True, text=True, check=True).stdout
    listed = told.split("Commands:")[1].split("Options:")[0].splitlines()
    commands = {line.split()[0] for line in listed if line.startswith("  ") and line[2:3].isalpha()} - {"help"}
    assert "run" in commands
    pages = {path.name for path in (installed / "share/man/man1").iterdir()}
    assert pages >= {"trainyard.1"} | {f"trainyard-{command}.1" for command in commands}
    # `mpijob create` and the like have pages of their own
    names = {page.removesuffix(".1").removeprefix("trainyard-") for page in pages - {"trainyard.1"}}
    assert {name for name in names if not any(name == command or name.startswith(f"{command}-") for command in commands)} == set()


def test_bash_completes_commands_flags_and_names(installed: pathlib.Path, yard: Yard, plain: str):
    script = yard.home / "hello.py"
    script.write_text("print('hello')\n")
    yard.run("run", "--runtime", plain, "--name", "first-job", str(script))
    yard.kubectl("create", "namespace", "team-a")
    home = {"TRAINYARD_HOME": str(yard.home)}
    assert {"run", "logs", "completions"} <= set(completed(installed, ""))
    assert completed(installed, "logs", "--fol") == ["--follow"]
    assert completed(installed, "logs", "fir", **home) == ["first-job"]
    assert completed(installed, "delete", "", **home)[0] == "first-job"
    assert completed(installed, "--home", str(yard.home), "get", "fir") == ["first-job"]
    assert completed(installed, "-n", "team-a", "get", "fir", **home) == []
    assert completed(installed, "run", "--runtime", "torch-d", **home) == ["torch-distributed"]
    assert completed(installed, "get", "-n", "team", **home) == ["team-a"]
    # commands, options and places of sky; clusters and jobs are tested where there are some
    assert completed(installed, "sky", "au") == ["autostop"]
    assert completed(installed, "sky", "launch", "--num-n") == ["--num-nodes"]
    assert completed(installed, "sky", "check", "loc") == ["local"]
    assert f"{yard.home}/hello.py" in completed(installed, "run", f"{yard.home}/hel")


def named_sky(installed: pathlib.Path, home: pathlib.Path, yard: Yard) -> dict[str, str]:
    """The environment of a user who has a link named sky."""
    (home / "bin").mkdir()
    (home / "bin/sky").symlink_to(installed / "bin/trainyard")
    return {"PATH": f"{home}/bin:{installed}/bin:{os.environ['PATH']}", "TRAINYARD_HOME": str(yard.home), "HOME": str(home)}


def test_bash_completes_a_link_named_sky(installed: pathlib.Path, yard: Yard, tmp_path: pathlib.Path):
    env = named_sky(installed, tmp_path, yard)
    (tmp_path / "file.yaml").touch()
    for program in ("sky", "~/bin/sky"):
        sky = lambda *words: completed(installed, *words, program=program, **env)
        assert sky("au") == ["autostop"]
        assert sky("jobs", "po") == ["pool"]
        assert sky("launch", "--num-n") == ["--num-nodes"]
        assert sky("check", "loc") == ["local"]
        assert "run" not in sky("") and "logs" in sky("")
        assert f"{tmp_path}/file.yaml" in sky("launch", f"{tmp_path}/fi")
        # options of trainyard are none of sky's
        assert sky("status", "--kubec") == []
    # names of clusters and jobs are tested where there are some

    # SkyPilot's own program, without its completion: files, as if there were no completion
    theirs = write(tmp_path / "theirs/sky", f"#!{tmp_path}/venv/bin/python3\n", 0o755)
    path = f"{theirs.parent}:{env['PATH']}"
    assert completed(installed, "au", program="sky", **{**env, "PATH": path}) == []
    assert completed(installed, f"{tmp_path}/fi", program="sky", **{**env, "PATH": path}) == [f"{tmp_path}/file.yaml"]
    # with it: it stays
    script = installed / "share/bash-completion/completions/trainyard"
    words = ["bash", "--norc", "-c", 'complete -F _sky_completion sky; source "$1"; complete -p sky', "bash", script]
    assert "-F _sky_completion sky" in subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_completion_is_silent_without_a_server(installed: pathlib.Path, tmp_path: pathlib.Path):
    assert completed(installed, "logs", "fir", TRAINYARD_HOME=str(tmp_path)) == []
    # an address that answers nothing at all (RFC 5737)
    user = {"name": "u", "user": {"token": "x"}}
    cluster = {"name": "c", "cluster": {"server": "https://192.0.2.1:6443"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster], "users": [user], "contexts": [context]
    }  # fmt: skip
    (tmp_path / "config").write_text(json.dumps(kubeconfig))
    assert completed(installed, "--kubeconfig", str(tmp_path / "config"), "logs", "fir") == []
    (tmp_path / "config").write_text("no kubeconfig")
    assert completed(installed, "--kubeconfig", str(tmp_path / "config"), "logs", "fir") == []


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(installed: pathlib.Path, yard: Yard, tmp_path: pathlib.Path):
    env = {**os.environ, **named_sky(installed, tmp_path, yard), "XDG_DATA_DIRS": f"{installed}/share:/usr/share"}
    for line, offers in (("trainyard run --runtime torch-d", "torch-distributed"), ("sky launch --num-n", "--num-nodes")):
        words = ["fish", "-c", f"complete -C '{line}'"]
        done = subprocess.run(words, capture_output=True, text=True, env=env)
        assert done.stdout.split()[:1] == [offers], done


@pytest.mark.skipif(shutil.which("zsh") is None or shutil.which("tmux") is None, reason="zsh or tmux is not installed")
def test_zsh_completes_at_the_first_tab(installed: pathlib.Path, yard: Yard, tmp_path: pathlib.Path):
    (tmp_path / ".zshrc").write_text(
        f'PS1="ready> "\nfpath=("{installed}/share/zsh/site-functions" $fpath)\nautoload -U compinit && compinit -u -D\n'
    )
    env = {
        "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "PATH": f"{installed}/bin:{os.environ['PATH']}",
        "TRAINYARD_HOME": str(yard.home), "TERM": "screen", "LANG": "C.UTF-8",
    }  # fmt: skip

    def tmux(*words: str) -> str:
        words = ("tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null", *words)
        return subprocess.run(words, capture_output=True, text=True, env=env, check=True).stdout

    tmux("new-session", "-d", "-x", "120", "-y", "20", "zsh")
    try:
        wait_for("the prompt", lambda: "ready>" in tmux("capture-pane", "-p"), 20)
        tmux("send-keys", "trainyard runti", "Tab")
        wait_for("the command", lambda: "trainyard runtimes" in tmux("capture-pane", "-p"), 20)
        tmux("send-keys", "C-u", "sky autost", "Tab")
        wait_for("the command of sky", lambda: "sky autostop" in tmux("capture-pane", "-p"), 20)
        tmux("send-keys", "C-u", "trainyard run --runtime torch-d")

        def name() -> bool:
            # a server on a busy machine may be too late for one Tab
            tmux("send-keys", "Tab")
            return "--runtime torch-distributed" in tmux("capture-pane", "-p")

        wait_for("the name", name, 20)
    finally:
        tmux("kill-server")
