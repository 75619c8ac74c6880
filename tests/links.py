"""The links of Markdown files, and what is wrong with them. Nothing is asked of the network."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]*)>?[^)]*\)")
DEFINED = re.compile(r"^ {0,3}\[[^\]]+\]: +(\S+)", re.MULTILINE)
BARE = re.compile(r"(?<![(<\w])https?:[^\s)>\"'|]*")
HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w&/])[\w./-]* ?#\d+")
REFERENCE = re.compile(r"[a-z][a-z0-9/-]*#\d+")
"""`vllm#48633`; another project has the name of its repository."""

PLAIN = (
    r"github\.com/vllm-project/vllm/(?:pull|issues)/\d+",
    r"\bvllm-project/vllm#\d+",
    r"\b(?:PR|issue|pull request) ?#?\d{4,}\b",
)
"""Other ways to write vllm#NNN."""


def problems(path: Path) -> list[str]:
    """What is wrong with the links and references of a file, in words."""
    text = CODE.sub("", FENCE.sub("", path.read_text(encoding="utf-8")))
    return [*_links(path, text), *_references(text)]


def _links(path: Path, text: str) -> Iterator[str]:
    for link in (*LINK.findall(text), *DEFINED.findall(text), *BARE.findall(text)):
        if "://" in link or link.startswith(("http:", "https:", "mailto:")):
            if not _well_formed(link):
                yield f"{link}: not a well-formed address"
        elif why := _broken(path, link):
            yield f"{link}: {why}"


def _well_formed(link: str) -> bool:
    """Whether a link leads out of the repository, and can lead somewhere."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return False
    host = parts.hostname or ""
    return parts.scheme == "https" and "." in host and not host.startswith(".")


def _broken(path: Path, link: str) -> str:
    """Why a link to a file, or to a heading of one, leads nowhere. Empty if it leads there."""
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    if not target.exists():
        return "no such file"
    if not anchor:
        return "" if name else "an empty link"
    if target.suffix != ".md":
        return "an anchor of a file that is no page"
    return "" if anchor in anchors(target.read_text(encoding="utf-8")) else "no such heading"


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def _references(text: str) -> Iterator[str]:
    for pattern in PLAIN:
        for found in re.finditer(pattern, text):
            yield f"{found[0]}: write vllm#NNN"
    for found in NUMBER.finditer(LINK.sub("]", text)):
        if not REFERENCE.fullmatch(found[0].strip("./-")):
            yield f"{found[0].strip()}: write vllm#NNN, or the repository before #"


def all_problems(files: list[Path], shown: Callable[[Path], str]) -> list[str]:
    """What is wrong in all of these files, with their names."""
    return [f"{shown(path)}: {problem}" for path in files for problem in problems(path)]
