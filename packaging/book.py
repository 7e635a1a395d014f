"""A preprocessor of mdbook: links to files outside of docs/ become plain text, because the book does not hold those files."""

from __future__ import annotations

import json
import posixpath
import re
import sys

LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def inside(text: str, folder: str) -> str:
    def shown(link: re.Match) -> str:
        leaves = "://" not in link[2] and posixpath.normpath(posixpath.join(folder, link[2])).startswith("..")
        return link[1] if leaves else link[0]

    return LINK.sub(shown, text)


def walk(items: list) -> None:
    for item in items:
        if isinstance(item, dict) and (chapter := item.get("Chapter")):
            chapter["content"] = inside(chapter["content"], posixpath.dirname(chapter["path"] or ""))
            walk(chapter["sub_items"])


if __name__ == "__main__":
    # `supports RENDERER` asks for an exit code
    if sys.argv[1:2] == ["supports"]:
        sys.exit(sys.argv[2] != "html")
    _, book = json.load(sys.stdin)
    walk(book["items"])
    json.dump(book, sys.stdout)
