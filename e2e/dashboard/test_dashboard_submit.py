"""The form of a new job in a real Chromium, with its editor: the server's dry run puts errors at their fields, and nothing that was typed is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from conftest import Yard, wait_for
from playwright.sync_api import Browser, Page, expect
from visitors import Visitor, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visitor(yard: Yard, browser: Browser) -> Iterator[Visitor]:
    with browser.new_context() as context:
        visitor = Visitor(yard, context)
        visitor.sign_in()
        yield visitor
        assert not visitor.said, visitor.said


def editor(page: Page):
    return page.get_by_label("The job as YAML")


def job(yard: Yard, kind: str, name: str) -> dict:
    return json.loads(yard.kubectl("get", kind, name, "-o", "json").stdout)


def test_a_job_is_submitted_and_copied(visitor: Visitor, yard: Yard) -> None:
    page = visitor.open("/jobs")
    page.get_by_role("link", name="New job").click()
    expect(editor(page)).to_contain_text("kind: TrainJob")
    expect(page.get_by_text("the server would create TrainJob")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("by-form")
    page.get_by_label("Runtime").fill("plain")
    page.get_by_label("Command").fill("echo hello && echo there")
    page.get_by_label("Nodes").fill("2")
    expect(editor(page)).to_contain_text("numNodes: 2")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("by-form")
    spec = job(yard, "trainjob", "by-form")["spec"]
    assert spec["runtimeRef"]["name"] == "plain" and spec["trainer"]["numNodes"] == 2, spec
    assert spec["trainer"]["command"] == ["bash", "-c", "echo hello && echo there"]
    expect(page.get_by_role("heading", level=1)).to_contain_text("Complete")
    page.get_by_role("link", name="Copy", exact=True).click()
    expect(page.get_by_role("heading", name="Copy of by-form")).to_be_visible()
    expect(page.get_by_label("Command")).to_have_value("echo hello && echo there")
    page.get_by_label("Name", exact=True).fill("by-copy")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("by-copy")
    assert job(yard, "trainjob", "by-copy")["spec"]["trainer"] == spec["trainer"]


def test_errors_stand_at_their_fields(visitor: Visitor, yard: Yard) -> None:
    page = visitor.open("/submit")
    for field, value, wanted in [
        ("Nodes", "many", "cannot unmarshal string"),
        ("Name", "Not_A_Name", "RFC 1"),
        ("Runtime", "no-such-runtime", "not found"),
    ]:
        box = page.get_by_label(field, exact=True)
        before = box.input_value()
        box.fill(value)
        group = page.locator(".pf-v6-c-form__group").filter(has=box)
        expect(group).to_contain_text(wanted)
        expect(page.locator(".cm-lint-marker-error").first).to_be_visible()
        assert not visitor.violations(), field
        box.fill(before)
        expect(page.get_by_text("the server would create TrainJob")).to_be_visible()
    editor(page).click()
    page.keyboard.press("Control+End")
    page.keyboard.type("\n  colour: red\n")
    expect(page.get_by_text("unknown field spec.colour")).to_be_visible()
    page.keyboard.type("- : [")
    expect(page.get_by_text("The YAML has a syntax error")).to_be_visible()
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()


def test_what_was_typed_is_kept(visitor: Visitor, yard: Yard) -> None:
    page = visitor.open("/submit")
    page.get_by_label("Name", exact=True).fill("kept")
    expect(editor(page)).to_contain_text("name: kept")
    page.reload()
    expect(page.get_by_label("Name", exact=True)).to_have_value("kept")
    # the session ends while somebody types
    page.evaluate("fetch('/api/session', {method: 'DELETE', headers: {'x-trainyard-session': localStorage.getItem('trainyard-session')}})")
    page.get_by_label("Nodes").fill("3")
    page.get_by_text("Your session has ended").wait_for()
    page.get_by_label("Token").fill((yard.home / "kubeconfig").read_text().split("token: ")[1].split()[0].strip('"'))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_label("Nodes")).to_have_value("3")
    expect(page.get_by_label("Name", exact=True)).to_have_value("kept")
    page.get_by_role("button", name="Start over").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("my-job")
    # the browser says by itself that a request was refused
    visitor.said[:] = [line for line in visitor.said if "401" not in line]


@pytest.mark.parametrize(("kind", "title"), [("mpijob", "MPIJob"), ("optimizationjob", "OptimizationJob")])
def test_examples_of_other_kinds_would_be_taken(visitor: Visitor, yard: Yard, kind: str, title: str) -> None:
    page = visitor.open("/submit")
    page.get_by_label("Kind").select_option(kind)
    expect(page.get_by_text(f"the server would create {title}")).to_be_visible()
    assert not visitor.violations()
    page.get_by_role("button", name="Dark theme").click()
    # colours fade
    wait_for("a page that is accessible", lambda: not visitor.violations(), 10)


def test_a_form_is_filled_by_keyboard_alone(visitor: Visitor, yard: Yard) -> None:
    page = visitor.open("/submit")
    expect(page.get_by_text("the server would create TrainJob")).to_be_visible()
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("by-keys")
    # the editor is left as it was entered
    seen: set[str] = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.getAttribute('aria-label') ?? ''"))
    assert {"The job as YAML", "The same in a terminal"} <= seen, seen
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("by-keys")
    wait_for("the job", lambda: job(yard, "trainjob", "by-keys"), 10)


def test_other_objects_are_refused(visitor: Visitor, yard: Yard) -> None:
    page = visitor.open("/jobs")
    submit = """(object) => fetch('/api/submit', {method: 'POST', body: JSON.stringify({object, dryRun: false}), headers: {
        'content-type': 'application/json', 'x-trainyard-session': localStorage.getItem('trainyard-session')}}).then(r => r.json())"""
    told = page.evaluate(submit, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})
    assert not told["ok"] and told["faults"][0]["field"] == "kind", told
    told = page.evaluate(submit, {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "x", "namespace": "../../x"}})
    assert not told["ok"] and told["faults"][0]["field"] == "metadata.namespace", told
    for path in ("/api/submit?kind=jobset", "/api/submit?from=secret/default/x", "/api/submit?from=x", "/api/submit?colour=red"):
        told = page.evaluate("(path) => fetch(path, {headers: {'x-trainyard-session': localStorage.getItem('trainyard-session')}}).then(r => r.json())", path)
        assert "message" in told, path
    visitor.said.clear()
