"""The documents hold together: the book's table of contents names every page, and every link leads to a file and a heading.

`UPDATE=1` writes the error pages of the table of contents. `cargo xtask tidy` checks the files, but not the headings, that links of
README, ARCHITECTURE, CONTRIBUTING and COMPATIBILITY name.
"""

from __future__ import annotations

import os
import pathlib
import re

import pytest

from conftest import ROOT

DOCS = ROOT / "docs"
SUMMARY = DOCS / "SUMMARY.md"
BY_TIDY = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "COMPATIBILITY.md")
PAGES = [*(ROOT / name for name in (*BY_TIDY, "AGENTS.md", "SECURITY.md")), *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s]+)\)")


@pytest.fixture(scope="session", autouse=True)
def binary() -> None:
    """None is needed here."""


def prose(text: str) -> list[tuple[int, str]]:
    """The numbered lines of a page outside of its blocks and comments."""
    lines, fence = [], ""
    text = re.sub(r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1] == fence and not line.strip().strip(fence[0]):
            fence = ""
        elif not fence and not line.startswith("    "):
            lines.append((number, line))
    return lines


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for _, line in prose(text):
        if heading := re.match(r"#{1,6}\s+(.*?)\s*#*$", line):
            words = re.sub(r"[^\w\- ]", "", LINK.sub(r"\1", heading[1]).lower()).replace(" ", "-")
            anchor, again = words, 0
            while anchor in found:
                again += 1
                anchor = f"{words}-{again}"
            found.add(anchor)
    return found


def links(text: str) -> list[tuple[int, str]]:
    """The links of a page, with their lines; those to other sites are left out."""
    found = []
    for number, line in prose(text):
        # a link within a code span is none
        plain = re.sub(r"(`+)(?:(?!\1).)*?\1", lambda span: "-" * len(span[0]), line)
        found += [(number, link[2]) for link in LINK.finditer(plain) if not re.match(r"[a-z]+:", link[2])]
    return found


def broken(page: pathlib.Path, text: str, by_tidy: bool) -> list[str]:
    """What is wrong with the links of a page."""
    findings = []
    for line, link in links(text):
        path, _, anchor = link.partition("#")
        if by_tidy and not anchor:
            continue
        target = (page.parent / path).resolve() if path else page
        where = f"{page.relative_to(ROOT)}:{line}: {link}"
        if not target.exists():
            findings.append(f"{where}: there is no such file")
        elif not target.is_relative_to(ROOT):
            findings.append(f"{where}: it leaves the repository")
        elif anchor and (target.suffix != ".md" or anchor not in anchors(text if target == page else target.read_text())):
            findings.append(f"{where}: there is no such heading")
    return findings


def test_every_link_leads_somewhere():
    assert [fault for page in PAGES for fault in broken(page, page.read_text(), page.name in BY_TIDY and page.parent == ROOT)] == []


def test_every_page_is_in_the_book_once():
    listed = [link for _, link in links(SUMMARY.read_text())]
    pages = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page != SUMMARY)
    assert sorted(listed) == pages


def test_error_pages_are_listed_by_code_and_name():
    pages = sorted((DOCS / "errors").glob("TY*.md"))
    expected = "".join(f"  - [{page.read_text().splitlines()[0][2:]}](errors/{page.name})\n" for page in pages)
    text = SUMMARY.read_text()
    index = "- [Errors and reasons](errors/README.md)\n"
    before, after = text.split(index)
    if os.environ.get("UPDATE"):
        SUMMARY.write_text(before + index + expected + re.sub(r"\A(?:  - .*\n)*", "", after))
    assert SUMMARY.read_text().startswith(before + index + expected), "UPDATE=1 writes these lines"


def test_the_index_by_task_names_page_and_section():
    rows = [line for _, line in prose((DOCS / "tasks.md").read_text()) if line.startswith("| ") and "I want to" not in line]
    assert len(rows) > 30
    assert [row for row in rows if not LINK.search(row)] == []


def test_links_are_read_as_github_reads_them():
    text = "\n".join([
        "# `run --watch`: again", "## Twice", "## Twice", "<!-- ## No -->", "```sh", "# no", "[a](no)", "```", "    [a](no)",
        "`[a](no)` [`b`](docs/cli.md#twice), [c](https://x.example/#y)", "[d](#twice-1)",
    ])  # fmt: skip
    assert anchors(text) == {"run---watch-again", "twice", "twice-1"}
    assert links(text) == [(10, "docs/cli.md#twice"), (11, "#twice-1")]
    page = ROOT / "README.md"
    assert broken(page, text, False) == ["README.md:10: docs/cli.md#twice: there is no such heading"]
    assert broken(page, "[a](docs/none.md) [b](docs/none.md#x)", True) == ["README.md:1: docs/none.md#x: there is no such file"]
    assert broken(page, "[a](../x)", False)
