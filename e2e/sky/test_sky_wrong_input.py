"""Wrong task files and wrong words of `sky`: one clear message each, with the place in the file, and nothing made."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import BINARY, ROOT

DRY = ["launch", "--dryrun", "-c", "dev"]
UTF_16 = "run: x\n".encode("utf-16")

# what `t.yaml` holds: what is said, and where it is (line and column; nothing where the file as a whole is meant)
FILES: list[tuple[str | bytes, str, tuple[int, int] | None]] = [
    ("acelerators: V100\nrun: x\n", "Found unsupported field 'acelerators'", (1, 14)),
    ("run: x\nresources:\n  acelerators: V100\n", "Instead of 'acelerators', did you mean 'accelerators'?", (3, 16)),
    ("run: x\nresourcs:\n  cpus: 2\n", "Instead of 'resourcs', did you mean 'resources'?", (3, 3)),
    ("run: x\nresources: {accelerators: 5}\n", "5 is not valid under any of the given schemas", (2, 27)),
    ("run: x\nresources:\n  cpus: many\n", '"cpus" field should be either a number', (3, 9)),
    ("run: x\nresources:\n  memory: -5\n", '"memory" field should be positive', (3, 11)),
    ("run: x\nresources:\n  infra: awss\n", "did you mean aws?", (3, 10)),
    ("run: x\nresources:\n  infra: aws//b\n", "A place is CLOUD, CLOUD/REGION", (3, 10)),
    ("run: x\nresources:\n  infra: aws/us-east-9\n", "Did you mean one of these: 'us-east-1", (3, 10)),
    ("run: x\nresources:\n  infra: ssh/nope\n", "SSH Node Pool 'nope' is not set up", (3, 10)),
    ("run: x\nresources:\n  infra: k8s/nope\n", "Context nope not found in kubeconfig", (3, 10)),
    ("run: x\nresources:\n  instance_type: m6i.huge\n", "Invalid instance type 'm6i.huge'", (3, 18)),
    ("run: x\nresources:\n  disk_size: big\n", "'big' does not match", (3, 14)),
    ("run: x\nresources:\n  use_spot: maybe\n", "'maybe' is not of type 'boolean'", (3, 13)),
    ("run: x\nresources:\n  ports: 70000\n", "between 1 and 65535", (3, 10)),
    ("run: x\nresources: {any_of: {cpus: 4}}\n", "is not of type 'array'", (2, 21)),
    ("run: x\nresources: {accelerators: []}\n", "accelerators is empty: name one", (2, 27)),
    ("run: x\nresources: {accelerators: V1000}\n", "near it are V100, P100, H100", None),
    ("run: [a, b]\n", "['a', 'b'] is not of type 'string'", (1, 6)),
    ("run: x\nnum_nodes: zero\n", "'zero' is not of type 'integer'", (2, 12)),
    ("run: x\nnum_nodes: 0\n", "num_nodes should be a positive int", (2, 12)),
    ("run: x\nenvs: [A, B]\n", "is not of type 'dict'", (2, 7)),
    ("run: x\nenvs:\n  A-B: 1\n", "The `envs` field contains invalid keys", (3, 3)),
    ("run: x\nenvs:\n", "`envs` is empty. Name variables below it", None),
    ("run: x\nenvs:\n  A:\n", "Environment variable 'A' is None. Please set a value", None),
    ("workdir: nope\nrun: x\n", "Workdir must be a valid directory", (1, 10)),
    ("workdir: a.txt\nrun: x\n", "Workdir must be a valid directory", (1, 10)),
    ("run: x\nfile_mounts:\n  /a: nope\n", "File mount source 'nope' does not exist locally. To fix:", (3, 7)),
    ("run: x\nfile_mounts:\n  /a/: a.txt\n", "Mount paths cannot end with a slash", (3, 8)),
    ("name: -a\nrun: x\n", "Invalid task name -a. Valid name:", (1, 7)),
    ("run: x\nrun: y\n", "Duplicate key 'run' in YAML at line 2 (also defined at line 1)", (2, 1)),
    ("run: x\nresources:\n  cpus: 2\n  cpus: 4\n", "Duplicate key 'cpus' in YAML at line 4", (4, 3)),
    ("", "'t.yaml' is empty or contains no task definition. Add at least a `run:`", None),
    ("\n# nothing yet\n", "'t.yaml' is empty or contains no task definition", None),
    ("---\n{}\n", "'t.yaml' is empty or contains no task definition", None),
    ("- a\n- b\n", "A task is a mapping of fields such as `run`", (1, 1)),
    ("5\n", "A task is a mapping of fields such as `run`", (1, 1)),
    ("run: x\n\tsetup: y\n", "tab", (2, 1)),
    ("\trun: x\n", "found a tab where a token may begin; use spaces", (1, 1)),
    ("run: x\n\t\nname: a\n", "tab", (2, 1)),
    ("run: |\n  a\n\tb\n", "tab", (3, 1)),
    ("run: 'x\n", "quoted scalar", (2, 1)),
    ("run: x\n  setup: y\n", "mapping values are not allowed in this context", (2, 8)),
    ("run: *a\n", "unknown anchor", (1, 6)),
    ("...\nrun: x\n", "did not find a document before `...`", (1, 1)),
    ("run: a\x00b\n", "unexpected character", (1, 7)),
    ("run: x\r\nresources:\r\n  cpus: 4\r\n  disk_sise: 5\r\n", "Instead of 'disk_sise', did you mean 'disk_size'?", (4, 14)),
    ("a: " + "[" * 20000, "recursion limit exceeded", (1, 259)),
    ("a: &a [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'.replace('a0', 'a')] * 9)}]\n" for n in range(1, 9)), "more than 200000 values", None),
    (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "it is no text in UTF-8 (line 1); save it as such", None),
    (b"run: x\nname: caf\xe9\n", "it is no text in UTF-8 (line 2)", None),
    (UTF_16, "it is no text in UTF-8", None),
    (b"# filler\n" * 2_000_000, "it has more than 16 MiB", None),
    ("name: p\n---\nname: a\nrun: x\n---\nname: b\nrun: y\n", "`trainyard sky launch` supports a single task only", None),
    ("name: g\nexecution: parallel\n---\nname: a\nrun: x\n", "only supported by `trainyard sky jobs launch`. `trainyard sky launch` supports a single task only", None),
    ("execution: parallel\n---\nname: a\nrun: x\n", "Job Group header missing required fields", (1, 1)),
    ("name: g\nexecution: parallel\ntermination_delay: soon\n---\nname: a\nrun: x\n", "Invalid time duration for termination_delay: 'soon'", (3, 20)),
    ("name: g\nexecution: parallel\nprimary_tasks: [b]\n---\nname: a\nrun: x\n", "primary_tasks references unknown job: b", (3, 16)),
    ("name: g\nexecution: parallel\ninter_connection: maybe\n---\nname: a\nrun: x\n", "inter_connection must be a boolean", (3, 19)),
    ("name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: a\nrun: y\n", "Duplicate job name in Job Group: a", (7, 7)),
]  # fmt: skip

GROUP = "name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\n"
# files that WORDS name
NAMED = {
    "group.yaml": f"{GROUP}run: y\n",
    "no-run.yaml": f"{GROUP}setup: y\n",
    "case.yaml": f"{GROUP}run: y\n---\nname: A\nrun: z\n",
    "long.yaml": f"{GROUP}run: y\n---\nname: {'c' * 62}\nrun: z\n",
}

# words, exit code, what is said
WORDS: list[tuple[list[str], int, str]] = [
    ([*DRY, "nope.yaml"], 1, "'nope.yaml' looks like a yaml path but does not exist"),
    ([*DRY, "folder.yaml"], 1, "'folder.yaml' looks like a yaml path but is not a file"),
    ([*DRY, "text.yaml"], 1, "'text.yaml' looks like a yaml path but holds a text, and no task"),
    ([*DRY, "recipes:mine"], 1, "there is no hub of recipes here"),
    ([*DRY, "--env", "A-B=1", "true"], 1, "Invalid env key: A-B"),
    ([*DRY, "--env", "NOT_SET_ANYWHERE", "true"], 2, "NOT_SET_ANYWHERE is not set in local environment"),
    ([*DRY, "--env-file", "nope", "true"], 2, "Dotenv file does not exist: nope"),
    ([*DRY, "--env-file", "folder.yaml", "true"], 2, "Dotenv file does not exist: folder.yaml"),
    ([*DRY, "--env-file", "binary", "true"], 1, "binary cannot be read: it is no text in UTF-8"),
    ([*DRY, "--gpus", "A1000", "true"], 1, "near it are A100, A6000, A10"),
    ([*DRY, "--gpus", "A100:x", "true"], 1, '"accelerators" field as a str should be <name> or <name>:<cnt>'),
    ([*DRY, "--gpus", "A100:0", "true"], 1, "Accelerator count must be a positive number"),
    ([*DRY, "--cpus", "many", "true"], 1, '"cpus" field should be either a number'),
    ([*DRY, "--memory", "16TBs", "true"], 1, '"memory" field should be a number'),
    ([*DRY, "--infra", "aws/x/y/z", "true"], 1, "Invalid infra format: aws/x/y/z"),
    ([*DRY, "--infra", "nimbus", "true"], 1, "Did you mean 'nebius'?"),
    ([*DRY, "--num-nodes", "0", "true"], 1, "num_nodes should be a positive int"),
    ([*DRY, "--num-nodes", "x", "true"], 2, "'x' is not a valid integer"),
    ([*DRY, "--ports", "x", "true"], 1, "Invalid port range x"),
    ([*DRY, "--disk-tier", "fast", "true"], 2, "'fast' is not one of 'low', 'medium'"),
    (["launch", "--dryrun", "-c", "a_b!", "true"], 1, 'Cluster name "a_b!" is invalid'),
    ([*DRY, "--gpu", "A100", "true"], 2, "Possible options: --cpus, --gpus"),
    ([*DRY, "--workdir", "nope", "true"], 2, "Directory 'nope' does not exist"),
    ([*DRY, "--config", "nope", "true"], 1, "there is no such file, and a setting is KEY.KEY=VALUE"),
    ([*DRY, "--git-ref", "main", "true"], 1, "--git-ref needs --git-url"),
    (["lauch", "x"], 2, "No such command 'lauch'"),
    (["exec"], 2, "Missing argument '[CLUSTER]'"),
    (["gpus", "list", "A100:x"], 2, "Invalid accelerator quantity x"),
    (["check", "nimbus"], 1, "There is no cloud nimbus"),
    (["jobs", "launch", "-y", "-p", "pool", "group.yaml"], 1, "Job group 'g' cannot run in pool 'pool'"),
    (["jobs", "launch", "-y", "--num-jobs", "2", "group.yaml"], 1, "--num-jobs 2 is not supported for job group 'g'"),
    (["jobs", "launch", "-y", "no-run.yaml"], 1, "Task 'b' of job group 'g' has no `run`"),
    (["jobs", "launch", "-y", "case.yaml"], 1, "Tasks 'a' and 'A' of job group 'g' would have the same host names"),
    (["jobs", "launch", "-y", "long.yaml"], 1, "cannot have the host name"),
    (["jobs", "launch", "-y", "--job-group", "3", "group.yaml"], 1, "a job cannot join a running job"),
    (["exec", "c", "group.yaml"], 2, "supports a single task only"),
    (["serve", "up", "-y", "group.yaml"], 2, "only supported by `trainyard sky jobs launch`"),
    (["jobs", "pool", "apply", "-y", "group.yaml"], 2, "only supported by `trainyard sky jobs launch`"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("wrong")
    shutil.copytree(ROOT / "crates/sky/golden/catalog/v8", place / "home/.sky/catalogs/v8")
    (place / "folder.yaml").mkdir()
    (place / "text.yaml").write_text("just a text\n")
    for name, text in NAMED.items():
        (place / name).write_text(text)
    (place / "a.txt").write_text("x")
    (place / "binary").write_bytes(b"A=\xff\n")
    return place


def refused(place: pathlib.Path, words: list[str], code: int, says: str) -> str:
    """What is said of these words, in a few lines; no file is made."""
    before = sorted(path for path in place.rglob("*"))
    environment = {"HOME": str(place / "home"), "PATH": os.environ["PATH"], "USER": "somebody"}
    done = subprocess.run([BINARY.resolve(), "sky", *words], cwd=place, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert says in said
    assert "panicked" not in said and "RUST_BACKTRACE" not in said and "Traceback" not in said
    assert len(done.stderr.splitlines()) <= 12, done.stderr
    assert sorted(path for path in place.rglob("*")) == before
    return done.stderr


@pytest.mark.parametrize("number", range(len(FILES)))
def test_a_wrong_file_is_told_with_its_place(place: pathlib.Path, number: int) -> None:
    text, says, at = FILES[number]
    (place / "t.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    is_several = "single task only" in says
    said = refused(place, [*DRY, "t.yaml"], 2 if is_several else 1, says)
    if at is not None:
        assert f"In t.yaml, line {at[0]}, column {at[1]}." in said.splitlines(), said


@pytest.mark.parametrize("number", range(len(WORDS)))
def test_wrong_words_are_told(place: pathlib.Path, number: int) -> None:
    words, code, says = WORDS[number]
    refused(place, words, code, says)


def test_the_place_is_not_of_what_an_option_says(place: pathlib.Path) -> None:
    (place / "t.yaml").write_text("run: x\nresources:\n  infra: aws\n")
    said = refused(place, [*DRY, "--infra", "aws/us-east-9", "t.yaml"], 1, "Invalid region 'us-east-9'")
    assert "line" not in said


def test_options_that_several_tasks_do_not_take_are_told(place: pathlib.Path) -> None:
    (place / "t.yaml").write_text("name: a\nrun: x\n---\nname: b\nrun: y\n")
    ignored = "WARNING: override params {'accelerators': 'T4', 'cpus': '4', 'use_spot': True, 'ports': ('80',)} are ignored, since the yaml file contains multiple tasks."
    refused(place, [*DRY, "--cpus", "4", "--ports", "80", "--use-spot", "--gpus", "T4", "t.yaml"], 2, ignored)
