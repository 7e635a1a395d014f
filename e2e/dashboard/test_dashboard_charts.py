"""Curves of metrics and charts of a sweep, in a real Chromium: what `metrics` and `trials` print."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
from conftest import Yard, wait_for
from playwright.sync_api import Browser, expect
from visitors import Visitor, chromium

LONG = 120
REPORTS = """\
import sys, time
for step in range(1, 5):
    print(f"step={step} loss={float(sys.argv[1]) / step}", flush=True)
    time.sleep(1.2)
print("loss=nan", flush=True)
time.sleep(1.2)
"""
# the trial of 0.3 fails after it has reported the best value of all
SWEEP = """\
import argparse, sys
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
lr = parser.parse_args().lr
print(f"loss={(lr - 0.2) ** 2 if lr != 0.3 else -1.0}", flush=True)
import time
time.sleep(1.5)
sys.exit(1 if lr == 0.3 else 0)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def runs(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> Yard:
    """Two jobs that reported a loss, and a sweep with one failed trial."""
    folder = tmp_path_factory.mktemp("scripts")

    def script(name: str, text: str) -> str:
        path: pathlib.Path = folder / name
        path.write_text(text)
        return str(path)

    reports = script("reports.py", REPORTS)
    for name, first in (("first", "1.0"), ("second", "8.0")):
        yard.run("run", "--detach", "--name", name, "--metric", "loss", "--metric", "step", reports, first)
    sweep = script("sweep.py", SWEEP)
    yard.run("run", "--detach", "--name", "tuned", "--sweep", "lr=0.1,0.2,0.3", "--objective", "loss", "--metric", "loss", sweep)
    wait_for("the jobs", lambda: all("Complete" in yard.run("get", name).stdout for name in ("first", "second")), LONG)
    wait_for("the trials", lambda: all(trial["state"] in ("Complete", "Failed") for trial in trials(yard)) and len(trials(yard)) == 3, LONG)
    return yard


def trials(yard: Yard) -> list[dict]:
    return json.loads(yard.run("trials", "tuned", "-o", "json").stdout)["trials"]


@pytest.fixture
def visitor(runs: Yard, browser: Browser) -> Iterator[Visitor]:
    with browser.new_context() as context:
        visitor = Visitor(runs, context)
        visitor.sign_in()
        yield visitor
        assert not visitor.said, visitor.said


def losses(yard: Yard, name: str) -> list[str]:
    reports = json.loads(yard.run("metrics", name, "-o", "json").stdout)["reports"]
    return [metric["value"] for report in reports for metric in report.get("metrics", []) if metric["name"] == "loss"]


def test_curves_are_what_metrics_prints(visitor: Visitor, runs: Yard) -> None:
    page = visitor.open("/jobs/trainjob/default/first?tab=metrics")
    table = page.get_by_role("grid", name="loss", exact=True)
    told = losses(runs, "first")
    finite = [float(value) for value in told if value.lower() != "nan"]
    line = table.get_by_role("row").filter(has_text="first")
    expect(line).to_contain_text(f"{len(told)}")
    expect(line.get_by_role("gridcell").nth(2)).to_have_text(f"{min(finite):.6g}")
    expect(line.get_by_role("gridcell").nth(3)).to_have_text(f"{max(finite):.6g}")
    chart = page.get_by_role("img", name="loss over time")
    chart.locator("svg path").first.wait_for(state="attached")
    page.get_by_label("Compare with another job").select_option("second")
    expect(table.get_by_role("row").filter(has_text="second")).to_be_visible()
    expect(chart.get_by_text("second", exact=True)).to_be_visible()
    assert "with=second" in page.url
    assert not visitor.violations()
    page.get_by_role("button", name="Dark theme").click()
    page.get_by_label("Logarithmic scale").check(force=True)
    chart.locator("svg path").first.wait_for(state="attached")
    assert not visitor.violations()
    page.reload()
    expect(table.get_by_role("row").filter(has_text="second")).to_be_visible()


def test_a_sweep_draws_only_results(visitor: Visitor, runs: Yard) -> None:
    page = visitor.open("/jobs/optimizationjob/default/tuned?tab=trials")
    table = page.get_by_role("grid", name="Trials", exact=True)
    told = trials(runs)
    (best,) = [trial["name"] for trial in told if trial["best"]]
    (failed,) = [trial["name"] for trial in told if trial["state"] == "Failed"]
    expect(table.get_by_role("row").filter(has_text=best)).to_contain_text("best")
    expect(table.get_by_role("row").filter(has_text=failed)).not_to_contain_text("-1")
    course = page.get_by_role("grid", name="Best loss over time")
    expect(course.get_by_role("row").last).to_contain_text(best)
    expect(course).not_to_contain_text(failed)
    for name in ("Parallel coordinates", "loss of each trial by lr", "The best loss over time"):
        page.get_by_role("img", name=name).locator("svg path").first.wait_for(state="attached")
    page.get_by_role("button", name="Move lr to the right").press("Enter")
    expect(page.locator(".axes li").first).to_contain_text("loss")
    page.get_by_role("checkbox", name="logarithmic: lr").check()
    page.get_by_label(f"Choose {best}").check()
    expect(table.get_by_label(f"Choose {best}")).to_be_checked()
    assert not visitor.violations()
    page.set_viewport_size({"width": 360, "height": 740})
    wait_for("the charts to be narrower", lambda: page.evaluate("document.documentElement.scrollWidth") <= 360, 10)
    table.get_by_role("link", name=best).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(best)


def test_what_makes_no_sense_is_refused(visitor: Visitor, runs: Yard) -> None:
    ask = "(path) => fetch(path, {headers: {'x-trainyard-session': localStorage.getItem('trainyard-session')}}).then(r => r.json())"
    page = visitor.open("/jobs")
    for query, wanted in [
        ("with=..%2Fx", "is not the name of a job"),
        ("&".join(f"with=a{number}" for number in range(12)), "at most 9 jobs"),
        ("colour=red", 'there is no parameter "colour"'),
    ]:
        told = page.evaluate(ask, f"/api/jobs/trainjob/default/first/series?{query}")
        assert wanted in told["message"], told
    told = page.evaluate(ask, "/api/jobs/trainjob/default/first/series?with=gone")
    assert "does not exist" in told["jobs"][1]["note"], told
    visitor.said.clear()
