"""Writes what SkyPilot's command line makes of random words: `words.py SEED COUNT DIR` makes DIR/words.json, a list of `args` with either `values` (by
parameter, as texts; `path` is the command) or `error` (what it prints before it exits with 2) or `help` (the command whose help it prints).

Nothing is carried out. Words are options and arguments of a command, hidden ones too, with values of their kind and others, misspelt, cut short, joined,
doubled and left out.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
from pathlib import Path

FOLDER = Path(sys.argv[3]).resolve()
HOME = tempfile.mkdtemp()
os.environ.update(HOME=HOME, SKYPILOT_DISABLE_USAGE_COLLECTION="1", COLUMNS="200")
os.chdir(HOME)
for name, text in {"f.env": "A=1\nB='two'\n", "sub/a": "x", "t.yaml": "run: x\n"}.items():
    (Path(HOME) / name).parent.mkdir(exist_ok=True)
    (Path(HOME) / name).write_text(text)

with contextlib.redirect_stdout(sys.stderr):
    import click
    from sky.client.cli import command

TEXTS = ["a", "dev", "5", "a b", "-5", "", "no", "x=y", "A=1", "ü", "it's", 'a"b', "--", "-", "none", "NONE", "t.yaml", "f.env", "nope.yaml", "sub", "/nowhere", "1,2"]
NUMBERS = ["5", "0", "-1", "07", "+3", " 4", "1_0", "1.5", "x", "", "none", "1e3", "99999999999999999999", "0x10", "inf", "nan", "1__0", "_1", "4294967296"]
# what is looked at with the files and variables of the computer
READ_ELSEWHERE = {"--config": "kubernetes.provision_timeout=5", "--env": "A=1", "--secret": "S=1", "--env-file": "f.env", "--secret-file": "f.env", "--workdir": "sub"}
TOLD_ELSEWHERE = ["Invalid value for '--config'", "Dotenv file does not exist", "is not set in local environment", "Directory '"]
TRUTHS = ["true", "no", "1", "x"]


def commands(one: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    """All commands below one, with their words."""
    below = one.commands if isinstance(one, click.Group) else {}
    return [(path, one), *(each for name, inner in below.items() for each in commands(inner, (*path, name)))]


def value(rng: random.Random, param: click.Parameter) -> str:
    """A word for a parameter, mostly of its kind."""
    kind = param.type
    for option, plain in READ_ELSEWHERE.items():
        if option in param.opts:
            return plain
    if isinstance(kind, click.Choice) and rng.random() < 0.8:
        one = rng.choice(list(kind.choices))
        return rng.choice([one, one, one, one.upper(), one.capitalize(), one[:-1]])
    if kind.name in ("integer", "float", "integer range", "float range", "int-or-none") and rng.random() < 0.9:
        return rng.choice(["3", "10", rng.choice(NUMBERS)])
    return rng.choice(TEXTS)


def option(rng: random.Random, param: click.Option) -> list[str]:
    """The words of an option."""
    name = rng.choice([*param.opts, *param.secondary_opts])
    odd = rng.random()
    if odd < 0.04:
        at = rng.randrange(2, len(name)) if len(name) > 2 else 1
        name = rng.choice([name[:at] + name[at + 1 :], name[: at + 1], name.upper(), name.replace("-", "_"), name + "s", "-" + name.lstrip("-"), "--" + name.lstrip("-")])
    if param.is_flag:
        return [f"{name}={rng.choice(TRUTHS)}"] if rng.random() < 0.04 else [name]
    given = value(rng, param)
    how = rng.random()
    if how < 0.04:
        return [name]
    if how < 0.3:
        return [f"{name}={given}" if name.startswith("--") else f"{name}{given}"]
    return [name, given]


def line(rng: random.Random, all_commands: list[tuple[tuple[str, ...], click.Command]]) -> list[str]:
    """A command line."""
    path, one = rng.choice(all_commands)
    words = list(path)
    if words and rng.random() < 0.03:
        words[-1] = rng.choice([words[-1][:-1], words[-1] + "s", words[-1].upper(), "", "-" + words[-1]])
    pieces: list[list[str]] = []
    # without those that change the shell's files
    options = [param for param in one.params if isinstance(param, click.Option) and "shell_completion" not in param.name]
    for param in rng.sample(options, min(len(options), rng.choice([0, 1, 1, 2, 3]))):
        pieces += [option(rng, param) for _ in range(rng.choice([1, 1, 1, 1, 2]))]
    flags = [opt[1:] for param in options if param.is_flag for opt in param.opts if re.fullmatch("-[a-z]", opt)]
    if flags and rng.random() < 0.1:
        pieces.append(["-" + "".join(rng.sample(flags, min(len(flags), 2))) + rng.choice(["", "c", "Z", "cdev"])])
    for param in one.params:
        if isinstance(param, click.Argument):
            count = 1 if param.nargs == 1 else rng.choice([0, 1, 2])
            if rng.random() < 0.1:
                count = rng.choice([0, 2])
            pieces += [[value(rng, param)] for _ in range(count)]
    if rng.random() < 0.05:
        pieces.append([rng.choice(["--help", "-h", "--", "-Z", "--nope", "-", "extra"])])
    if rng.random() < 0.5:
        rng.shuffle(pieces)
    return [*words, *(word for piece in pieces for word in piece)]


def written(one: object) -> str:
    """A value as a word."""
    if isinstance(one, bool):
        return str(one).lower()
    return "=".join(str(part) for part in one) if isinstance(one, tuple) else str(one)


def parsed(words: list[str]) -> dict:
    """What becomes of the words."""
    one, name, parent, rest, path = command.cli, "sky", None, list(words), "sky"
    try:
        while True:
            context = one.make_context(name, rest, parent=parent)
            if not isinstance(one, click.Group):
                break
            left = [*context.protected_args, *context.args]
            if not left:
                return {"help": path}
            context.args = []
            name, one, rest = one.resolve_command(context, left)
            parent, path = context, f"{path} {name}"
    except click.UsageError as error:
        shown = io.StringIO()
        error.show(shown)
        return {"error": re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue())}
    except click.exceptions.Exit:
        return {"help": path}
    except BaseException as error:  # Python's own
        return {"crash": type(error).__name__}
    values = {}
    for param in one.params:
        given = context.params.get(param.name)
        flag_with_a_value = isinstance(param, click.Option) and param.is_flag and not isinstance(given, bool)
        if param.expose_value and given is not None and not isinstance(given, dict) and not flag_with_a_value and context.get_parameter_source(param.name).name == "COMMANDLINE":
            many = param.multiple or param.nargs != 1
            each = [inner for one in given for inner in (one if isinstance(one, list) else [one])] if many else [given]
            values[param.name] = [written(inner) for inner in each]
    return {"path": path, "values": values}


def main() -> None:
    seed, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(f"{seed}/words")
    all_commands = commands(command.cli)
    out: list[dict] = []
    while len(out) < count:
        words = line(rng, all_commands)
        with contextlib.redirect_stdout(io.StringIO()):
            one = parsed(words)
        if not any(told in one.get("error", "") for told in TOLD_ELSEWHERE):
            out.append({"args": words, **one})
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "words.json").write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
