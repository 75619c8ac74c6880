"""The links of Markdown files that lead nowhere. Nothing is asked of the network."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]*)>?[^)]*\)")
DEFINED = re.compile(r"^ {0,3}\[[^\]]+\]: +(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#+)?$", re.MULTILINE)


def broken_links(path: Path) -> Iterator[str]:
    """The links of a page to a file or a heading that is not there, each with the reason."""
    text = CODE.sub("", FENCE.sub("", path.read_text(encoding="utf-8")))
    for link in (*LINK.findall(text), *DEFINED.findall(text)):
        if not link.startswith(("http:", "https:", "mailto:")) and (why := _broken(path, link)):
            yield f"{link}: {why}"


def _broken(path: Path, link: str) -> str:
    """Why a link leads nowhere. Empty if it leads somewhere."""
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
