"""The documents as data: their blocks, tables and links.

Owns the reading of Markdown as far as our documents use it. Runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md")

_HEADING = re.compile(r"(#+) (.+)")
_FENCE = re.compile(r"```(\w*)$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    document: str
    #: the heading above it
    section: str
    #: "console", "python", "json", "text"
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The commands of a console block."""
        return self.text.splitlines()


def documents() -> list[Path]:
    """Return every document that people read."""
    return [*(ROOT / name for name in DOCUMENTS), *sorted((ROOT / "docs").glob("*.md"))]


def text_of(name: str) -> str:
    """Return a document."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str = "", section: str = "") -> list[Block]:
    """Return the fenced blocks of a document, in order; all, or of one language or section."""
    found = [
        block
        for block in _blocks(name)
        if language in {"", block.language} and section in {"", block.section}
    ]
    assert found, f"{name} has no {language} block under {section!r}"
    return found


def _blocks(name: str) -> Iterator[Block]:
    section = language = ""
    inside: list[str] | None = None
    for line in text_of(name).splitlines():
        if inside is not None:
            if line == "```":
                yield Block(name, section, language, "\n".join(inside) + "\n")
                inside = None
            else:
                inside.append(line)
        elif fence := _FENCE.match(line):
            language, inside = fence[1], []
        elif heading := _HEADING.match(line):
            section = heading[2]
    assert inside is None, f"{name}: a block has no end"


def sections(text: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = (found[2] for line in prose.splitlines() if (found := _HEADING.match(line)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(path: Path) -> list[str]:
    """Return the targets of a document's links and pictures."""
    return _LINK.findall(path.read_text(encoding="utf-8"))


def first_column(name: str, header: str) -> list[str]:
    """Return the code words in the first column of the table whose header begins so."""
    lines = iter(text_of(name).splitlines())
    for line in lines:
        if line.startswith(f"| {header} |"):
            break
    else:
        msg = f"{name} has no table of {header}"
        raise AssertionError(msg)
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found += re.findall(r"`([^`]+)`", line.split("|")[1])
    return found
