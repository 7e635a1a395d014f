"""Records what the installed SkyPilot makes of task files: `record.py DIR` writes DIR/task/NAME/expected.json and DIR/optimizer/NAME/expected.json
for each task.yaml, and `expected` of each case of DIR/group-placement.json; with --plans only the optimizer's. Where an expected.json of the optimizer
is there already, it is compared, and what differs is left out and named: some choices of SkyPilot's hang on Python's hash seed.

Runs with an interpreter that has `skypilot==0.14.1` and `kubernetes` (`make skypilot`), in a home of its own: price lists from
DIR/catalog, a kubeconfig and a Slurm configuration as in the recordings' README.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

FOLDER = Path(sys.argv[1]).resolve()
HOME = Path(tempfile.mkdtemp())
CONTEXTS = ["example", "arn:aws:eks:us-east-1:1:cluster/example"]
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": CONTEXTS[0],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "none"}}],
    "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in CONTEXTS],
}
shutil.copytree(FOLDER / "catalog/v8", HOME / ".sky/catalogs/v8")
for name, text in {".kube/config": json.dumps(KUBECONFIG), ".slurm/config": "Host hpc\n  HostName 127.0.0.1\n  User u\n"}.items():
    (HOME / name).parent.mkdir(exist_ok=True)
    (HOME / name).write_text(text)
os.environ.update(HOME=str(HOME), KUBECONFIG=str(HOME / ".kube/config"), SKYPILOT_DISABLE_USAGE_COLLECTION="1")

with contextlib.redirect_stdout(sys.stderr):
    import sky
    from sky import check as sky_check
    from sky import clouds, optimizer
    from sky.server import plugins
    from sky.utils import annotations, common, dag_utils

ENABLED = [clouds.AWS(), clouds.GCP(), clouds.Azure(), clouds.Lambda(), clouds.RunPod()]


def told(error: BaseException) -> dict:
    """An error as the recordings have it: without colours."""
    return {"class": type(error).__name__, "message": re.sub(r"\x1b\[[0-9;]*m", "", str(error))}


def written(task) -> dict:
    """A task's normalised configuration."""
    config = task.to_yaml_config()
    config.pop("_user_specified_yaml", None)
    config = json.loads(json.dumps(config, default=str))
    alternatives = config.get("resources", {})
    if "any_of" in alternatives:
        alternatives["any_of"].sort(key=lambda one: json.dumps(one, sort_keys=True))
    return config


def read(text: str, options: dict, server: bool) -> dict:
    """What becomes of a file."""
    os.environ.pop("IS_SKYPILOT_SERVER", None)
    if server:
        os.environ["IS_SKYPILOT_SERVER"] = "1"
    pairs = [[tuple(pair) for pair in options.get(key, [])] or None for key in ("env", "secret")]
    try:
        dag = dag_utils.load_dag_from_yaml_str(text, *pairs)
        group = dag.is_job_group()
        out = {"kind": "group" if group else "pipeline" if len(dag.tasks) > 1 else "task", "name": dag.name, "tasks": [written(task) for task in dag.tasks]}
        if group:
            out["group"] = {"inter_connection": dag.inter_connection, "primary_tasks": dag.primary_tasks, "termination_delay": dag.termination_delay}
    except BaseException as error:
        return {"error": told(error)}
    try:
        for task in dag.tasks:
            task.validate()
    except ImportError:
        pass  # only a cloud's own library could tell
    except BaseException as error:
        out["validate_error"] = told(error)
    return out


def machine(resources) -> dict:
    """A machine as the recordings have it."""
    accelerators = {name: int(count) if count == int(count) else count for name, count in (resources.accelerators or {}).items()}
    return {
        "accelerators": accelerators or None,
        "hourly_cost": resources.get_cost(3600),
        "infra": resources.infra.to_str(),
        "instance_type": resources.instance_type,
        "use_spot": resources.use_spot,
    }


def planned(text: str, options: dict) -> dict:
    """What the optimizer chooses, and among what."""
    kept: dict = {}

    def keep(graph, order, best, seconds, dollars, costs, minimize_cost) -> None:
        kept.update(best=best, seconds=seconds, dollars=dollars, costs=costs)

    optimizer.Optimizer.print_optimized_plan = staticmethod(keep)
    optimizer.Optimizer._print_candidates = staticmethod(lambda _: None)
    enabled = [cloud for cloud in ENABLED if str(cloud).lower() in options["clouds"]]
    sky_check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: list(enabled)
    try:
        dag = dag_utils.load_dag_from_yaml_str(text)
        for task in dag.tasks:
            task.validate()
            if hours := options.get("hours", {}).get(task.name):
                task.set_time_estimator(
                    lambda one, hours=hours: 3600 * next((hours[gpu] for gpu in one.accelerators or {} if gpu in hours), hours.get("*", 1))
                )
        blocked = [one for config in options.get("blocked", []) for one in sky.Resources.from_yaml_config(config)]
        minimize = common.OptimizeTarget.COST if options["minimize"] == "cost" else common.OptimizeTarget.TIME
        optimizer.Optimizer.optimize(dag, minimize=minimize, blocked_resources=blocked or None)
    except BaseException as error:
        return {"error": told(error)}
    objective = options["minimize"]
    tasks = []
    for task in dag.tasks:
        candidates = [{**machine(one), objective: value} for one, value in kept["costs"][task].items()]
        candidates.sort(key=lambda one: json.dumps(one, sort_keys=True))
        tasks.append({"name": task.name, "candidates": candidates, "chosen": machine(kept["best"][task]), "nodes": task.num_nodes})
    return {"tasks": tasks, "total_cost": kept["dollars"], "total_seconds": kept["seconds"]}


def differences(one, other, at: str) -> list[str]:
    """Where two recordings differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [path for key in sorted({*one, *other}) for path in differences(one.get(key), other.get(key), f"{at}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [path for index, pair in enumerate(zip(one, other)) for path in differences(*pair, f"{at}/{index}")]
    close = isinstance(one, float) and isinstance(other, float) and abs(one - other) < 1e-9
    return [] if one == other or close else [at]


def leave_out(value, path: str) -> None:
    """Takes away the member at a path, or all of a list where the path names an element of it."""
    *parents, last = path.strip("/").split("/")
    for index, part in enumerate(parents):
        if isinstance(value, list) and int(part) >= len(value):
            return
        inner = value[int(part)] if isinstance(value, list) else value.get(part)
        if inner is None:
            return
        if isinstance(inner, list) and index + 1 == len(parents):
            value.pop(part, None)
            return
        value = inner
    value.pop(last, None)


def record_plans() -> None:
    for case in sorted((FOLDER / "optimizer").glob("*")):
        with contextlib.redirect_stdout(sys.stderr):
            out = planned((case / "task.yaml").read_text(), json.loads((case / "options.json").read_text()))
        expected = case / "expected.json"
        if expected.exists():
            before = json.loads(expected.read_text())
            unsteady = {*before.pop("not_steady", []), *differences(before, json.loads(json.dumps(out)), "")}
            out = before
            for path in unsteady:
                leave_out(out, path)
            if unsteady:
                out["not_steady"] = sorted(unsteady)
        expected.write_text(json.dumps(out, indent=2))


def together(case: dict) -> dict:
    """Where the tasks of a group are placed."""
    enabled = [cloud for cloud in ENABLED if str(cloud).lower() in case["clouds"]]
    sky_check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: list(enabled)
    try:
        dag = dag_utils.load_dag_from_yaml_str(case["task.yaml"])
        for task in dag.tasks:
            task.validate()
        optimizer.Optimizer.optimize_job_group(dag, quiet=True)
        return {"inter_connection": bool(dag.inter_connection), "tasks": [{"name": task.name, **machine(task.best_resources)} for task in dag.tasks]}
    except BaseException as error:
        return {"error": told(error)}


def record_groups() -> None:
    path = FOLDER / "group-placement.json"
    if path.exists():
        groups = json.loads(path.read_text())
        for case in groups["cases"]:
            with contextlib.redirect_stdout(sys.stderr):
                case["expected"] = together(case)
        path.write_text(json.dumps(groups, indent=0))


def main() -> None:
    logging.disable(logging.CRITICAL)
    annotations.is_on_api_server = True
    record_plans()
    if "--plans" in sys.argv:
        return
    record_groups()
    sky_check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: list(ENABLED)
    plugins.plugins_loaded = lambda: True
    for case in sorted((FOLDER / "task").glob("*")):
        options = json.loads((case / "options.json").read_text()) if (case / "options.json").exists() else {}
        text = (case / "task.yaml").read_text()
        with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(sys.stderr):
            os.chdir(place)
            for name, content in options.get("files", {}).items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_text(content)
            out, server = read(text, options, False), read(text, options, True)
            os.chdir("/")
        if server != out:
            out["server"] = {"error": server["error"]} if "error" in server else server
        recorded = json.dumps(out, default=str, indent=2).replace(place, "<cwd>").replace(str(HOME), "<home>")
        (case / "expected.json").write_text(recorded)
    shutil.rmtree(HOME, ignore_errors=True)


if __name__ == "__main__":
    main()
