"""A real Chromium, and pages that are signed in."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import urllib.parse
from collections.abc import Iterator

from conftest import ROOT, Yard
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
# a machine may be busy
expect.set_options(timeout=20_000)
# what a page may not say on its console: what the policy refused, and what failed
TROUBLE = ("error", "warning")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "Chromium is missing: apt-get install chromium"
    with sync_playwright() as playwright:
        # root has no sandbox of user namespaces to run it in
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else [])
        yield browser
        browser.close()


class Visitor:
    """Somebody with a browser of their own, in front of a dashboard."""

    def __init__(self, yard: Yard, context: BrowserContext):
        self.yard, self.context = yard, context
        self.page: Page = context.new_page()
        self.page.set_default_timeout(15_000)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text) if message.type in TROUBLE else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

    @property
    def base(self) -> str:
        return self.yard.running["dashboard"]

    def link(self) -> str:
        """A link that signs in once."""
        return json.loads(self.yard.run("dashboard", "--no-open", "-o", "json").stdout)["url"]

    def sign_in(self) -> Page:
        self.page.goto(self.link())
        self.page.get_by_role("heading", name="Jobs", exact=True).wait_for()
        return self.page

    def open(self, path: str) -> Page:
        self.page.goto(urllib.parse.urljoin(self.base, path))
        return self.page

    def violations(self) -> list[str]:
        """What axe finds against WCAG 2.2 AA on the page as it is now."""
        self.page.evaluate(AXE.read_text())
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
        found = self.page.evaluate("tags => axe.run(document, {runOnly: {type: 'tag', values: tags}})", tags)
        return [f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']]}" for one in found["violations"]]
