"""The dashboard in a real Chromium, on a control plane with real jobs. What it shows is what the command line prints."""

from __future__ import annotations

import gzip
import json
import pathlib
import re
from collections.abc import Callable, Iterator

import pytest
from conftest import Yard, wait_for
from playwright.sync_api import Browser, Page, expect
from visitors import Visitor, chromium

Script = Callable[[str, str], pathlib.Path]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visitor(yard: Yard, browser: Browser) -> Iterator[Visitor]:
    with browser.new_context() as context:
        yield Visitor(yard, context)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    """Writes a script, and returns its path."""
    folder = tmp_path_factory.mktemp("scripts")

    def written(name: str, text: str) -> pathlib.Path:
        path = folder / name
        path.write_text(text)
        return path

    return written


WAITS = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "waits", "namespace": "default"},
    "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {
        "command": ["true"], "resourcesPerNode": {"requests": {"cpu": "4000"}}}},
}  # fmt: skip
# it would run if any page put text of others into markup
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'


@pytest.fixture(scope="module")
def jobs(yard: Yard, script: Script) -> Yard:
    """A job that failed, one that goes on, and one that waits for a processor that no machine has."""
    fails = script("fails.py", f"print('first line')\nprint({HOSTILE!r})\nprint('\\033[31mred\\033[0m')\nraise SystemExit(3)\n")
    goes_on = script("goes_on.py", "import time\nfor n in range(100000):\n    print('step', n, flush=True)\n    time.sleep(0.2)\n")
    start(yard, "fails", fails, "--nodes", "2")
    start(yard, "goes-on", goes_on)
    yard.kubectl("create", "-f", "-", input=json.dumps(WAITS))
    wait_for("the failure", lambda: state(yard, "fails") == "Failed")
    wait_for("the job that goes on", lambda: state(yard, "goes-on") == "Running")
    return yard


def start(yard: Yard, name: str, path: pathlib.Path, *flags: str) -> None:
    yard.run("run", "--detach", "--name", name, *flags, str(path))


def state(yard: Yard, name: str) -> str:
    done = yard.run("get", name, check=False)
    lines = done.stdout.splitlines()
    return lines[1].split()[1] if len(lines) > 1 else ""


def explained(yard: Yard, name: str) -> dict:
    return json.loads(yard.run("explain", name, "-o", "json").stdout)


def row(page: Page, name: str):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_a_link_signs_in_once(visitor: Visitor, jobs: Yard) -> None:
    link = visitor.link()
    page = visitor.page
    page.goto(link)
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    assert "code" not in page.url
    page.reload()
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in to Trainyard").wait_for()
    page.goto(link)
    expect(page.get_by_text("this link was used before or is older than a minute")).to_be_visible()
    assert not [line for line in visitor.said if "401" not in line], visitor.said


def test_a_token_signs_in(visitor: Visitor, jobs: Yard) -> None:
    page = visitor.open("/")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("the API server does not accept this token")).to_be_visible()
    page.get_by_label("Token").fill((jobs.home / "kubeconfig").read_text().split("token: ")[1].split()[0].strip('"'))
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()


def test_the_table_shows_what_get_prints_and_is_live(visitor: Visitor, jobs: Yard, script: Script) -> None:
    page = visitor.sign_in()
    for name in ("fails", "goes-on", "waits"):
        expect(row(page, name)).to_contain_text(state(jobs, name))
    waits = explained(jobs, "waits")
    expect(row(page, "waits")).to_contain_text(waits["why"][:60])
    start(jobs, "short", script("short.py", "print(1)"))
    expect(row(page, "short")).to_contain_text("Complete", timeout=30_000)
    jobs.run("delete", "short")
    expect(row(page, "short")).to_have_count(0)
    # the view is in its address
    page.get_by_role("button", name=re.compile("^failed")).click()
    expect(row(page, "goes-on")).to_have_count(0)
    assert "state=failed" in page.url
    page.reload()
    expect(row(page, "fails")).to_be_visible()
    expect(row(page, "goes-on")).to_have_count(0)
    page.get_by_label(re.compile("^Search in names")).fill("nothing like it")
    page.keyboard.press("Enter")
    expect(page.get_by_text("No job is like that")).to_be_visible()
    assert not visitor.said, visitor.said


def test_a_failed_job_says_why(visitor: Visitor, jobs: Yard) -> None:
    page = visitor.sign_in()
    page.get_by_role("link", name="fails", exact=True).click()
    why = explained(jobs, "fails")
    expect(page.get_by_text(why["why"])).to_be_visible()
    expect(page.get_by_text(why["code"])).to_be_visible()
    for remedy in why["remedies"]:
        expect(page.get_by_text(remedy["text"]).first).to_be_visible()
    page.get_by_role("tab", name="Ranks").click()
    ranks = page.get_by_role("grid", name="Ranks").get_by_role("row")
    # of the container, where torchrun ends with 1 whatever the script's exit code is
    expect(ranks.filter(has_text="rank 0").get_by_role("gridcell").nth(4)).to_have_text("1")
    page.get_by_role("tab", name="Timeline").click()
    expect(page.get_by_role("grid", name="Timeline")).to_contain_text("exit code 1")
    page.get_by_role("tab", name="YAML").click()
    expect(page.get_by_text("kind: TrainJob")).to_be_visible()
    page.get_by_role("tab", name="Commands").click()
    expect(page.get_by_label("Explain")).to_have_value(re.compile("^trainyard explain fails"))
    assert not visitor.said, visitor.said


def test_text_of_others_is_text(visitor: Visitor, jobs: Yard) -> None:
    visitor.sign_in()
    page = visitor.open("/jobs/trainjob/default/fails?tab=logs")
    page.get_by_label("Search in the log, a regular expression").fill("first l[i]ne")
    page.keyboard.press("Enter")
    expect(page.locator("mark").first).to_contain_text("first line")
    expect(page.get_by_text("<script>window.hacked=1</script>").first).to_be_visible()
    expect(page.locator(".ansi-red").first).to_have_text("red")
    assert page.evaluate("window.hacked") is None
    expect(page.get_by_text("window.hacked").first).to_be_visible()  # the search keeps what is around
    page.get_by_label("Rank").select_option("1")
    expect(page.locator(".log-line").filter(has_text="rank 1").first).to_be_visible()
    expect(page.locator(".log-line").filter(has_text="rank 0")).to_have_count(0)
    assert not visitor.said, visitor.said


def test_the_whole_log_is_searched_and_downloaded(visitor: Visitor, jobs: Yard, tmp_path: pathlib.Path) -> None:
    visitor.sign_in()
    page = visitor.open("/jobs/trainjob/default/fails?tab=logs")
    page.get_by_label("Search in the log, a regular expression").fill("^first l[i]ne$")
    page.get_by_role("button", name="Search all lines").click()
    expect(page.get_by_text(re.compile(r"^2 lines of \d+ found$"))).to_be_visible()
    found = page.get_by_role("region", name="Lines that were found")
    expect(found).to_contain_text("<script>window.hacked=1</script>")
    assert not visitor.violations()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download all lines").click()
    assert download.value.suggested_filename == "fails.log.gz"
    download.value.save_as(tmp_path / "log.gz")
    lines = gzip.decompress((tmp_path / "log.gz").read_bytes()).decode().splitlines()
    printed = jobs.run("logs", "fails").stdout
    for rank in ("rank 0", "rank 1"):
        assert sum(f"{rank}: first line" in line for line in lines) == 1, lines
    assert printed.count("first line") == 2
    assert [line.split(" ")[0] for line in lines] == sorted(line.split(" ")[0] for line in lines), "by time"
    # a link is good once
    again = page.evaluate("(address) => fetch(address).then(r => r.status)", download.value.url)
    assert again == 404
    visitor.said.clear()


def test_a_log_is_followed(visitor: Visitor, jobs: Yard) -> None:
    visitor.sign_in()
    page = visitor.open("/jobs/trainjob/default/goes-on?tab=logs")
    lines = page.locator(".log-line")
    lines.first.wait_for()
    steps = lambda: [int(n) for n in re.findall(r"step (\d+)", page.locator(".log").inner_text())]
    last = max(steps())
    wait_for("ten more lines", lambda: max(steps(), default=0) >= last + 10, 20)
    shown = steps()
    assert shown == list(range(shown[0], shown[-1] + 1)), "each line once, in order"


def test_jobs_are_changed_after_it_was_said_what_goes(visitor: Visitor, jobs: Yard, script: Script) -> None:
    sleeps = script("sleeps.py", "import time\ntime.sleep(600)\n")
    for name in ("one", "two"):
        start(jobs, name, sleeps)
    page = visitor.sign_in()
    for name in ("one", "two"):
        row(page, name).get_by_role("checkbox").check()
    page.get_by_role("button", name="Actions on 2").click()
    page.get_by_role("menuitem", name="Suspend").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("trainyard suspend one")
    assert not visitor.violations()
    dialog.get_by_role("button", name="Suspend").click()
    for name in ("one", "two"):
        expect(row(page, name)).to_contain_text("Suspended")
    assert state(jobs, "one") == "Suspended"
    row(page, "one").get_by_role("checkbox").check()
    page.get_by_role("button", name="Actions on 1").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(dialog).to_contain_text("history go with it")
    dialog.get_by_role("button", name="Delete").click()
    expect(row(page, "one")).to_have_count(0)
    assert jobs.run("get", "one", check=False).returncode == 3
    jobs.run("delete", "two")


def test_a_job_is_changed_by_keyboard_alone(visitor: Visitor, jobs: Yard, script: Script) -> None:
    start(jobs, "keys", script("sleeps.py", "import time\ntime.sleep(600)\n"))
    visitor.sign_in()
    page = visitor.open("/jobs/trainjob/default/keys")
    button = page.get_by_role("button", name="Delete")
    button.wait_for()
    for _ in range(40):
        page.keyboard.press("Tab")
        if button.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("history go with it")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert state(jobs, "keys") != "", "it is still there"
    jobs.run("delete", "keys")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible(browser: Browser, jobs: Yard, theme: str) -> None:
    with browser.new_context(color_scheme=theme) as context:
        visitor = Visitor(jobs, context)
        page = visitor.open("/")
        page.get_by_role("heading", name="Sign in to Trainyard").wait_for()
        assert not visitor.violations()
        visitor.sign_in()
        row(page, "fails").wait_for()
        assert not visitor.violations()
        for tab in ("overview", "timeline", "ranks", "logs", "yaml", "commands"):
            visitor.open(f"/jobs/trainjob/default/fails?tab={tab}")
            page.get_by_role("heading", name="fails").wait_for()
            page.get_by_role("tabpanel").first.wait_for()
            assert not visitor.violations(), tab
        page.set_viewport_size({"width": 360, "height": 740})
        visitor.open("/jobs/trainjob/default/fails")
        page.get_by_role("heading", name="fails").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_page_goes_on_after_the_control_plane_was_killed(visitor: Visitor, jobs: Yard) -> None:
    page = visitor.sign_in()
    row(page, "goes-on").wait_for()
    page.evaluate("window.mark = 1")
    jobs.kill()
    expect(page.get_by_text("the control plane does not answer")).to_be_visible()
    jobs.up()
    expect(page.get_by_text("the control plane does not answer")).to_have_count(0, timeout=30_000)
    jobs.run("suspend", "goes-on")
    expect(row(page, "goes-on")).to_contain_text("Suspended", timeout=30_000)
    assert page.evaluate("window.mark") == 1, "it was not loaded again"
    jobs.run("resume", "goes-on")
    wait_for("the job to run again", lambda: state(jobs, "goes-on") == "Running")
