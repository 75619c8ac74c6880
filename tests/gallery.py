"""The pictures of docs/gallery.md: `python -m tests.gallery` makes them again. It needs Chromium.

A picture has the block ledger of the trace of the command that stands above it on the page. The
text of the page is written by hand, and `test_pages.py` runs its commands.
"""

import contextlib
import hashlib
import io
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from kvproof.cli.main import main as kvproof
from tests.pages import ROOT

PAGE = ROOT / "docs" / "gallery.md"
WIDTH, COLOURS = 1400, 64


class Picture(NamedTuple):
    """A picture of the page: its file, and the arguments of the command whose trace it shows."""

    file: Path
    command: list[str]


class Ledger(NamedTuple):
    """The page of a block ledger, and what it has of the trace as one number."""

    html: str
    digest: str


def pictures() -> list[Picture]:
    """The pictures of the page, in order."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.findall(r"^\$ kvproof (.*)\n(?:.*\n)*?```\n\n!\[.*\]\((.*)\)$", text, re.MULTILINE)
    return [Picture(PAGE.parent / file, command.split()) for command, file in found]


def ledger(command: list[str]) -> Ledger:
    """The block ledger of the trace that this command shows, or writes."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        Path("findings").symlink_to(ROOT / "findings")
        kvproof(command)
        trace = command[-1]
        if command[0] == "explore":
            [trace] = map(str, Path("kvproof-traces").iterdir())
        kvproof(["report", trace, "--html", "page.html"])
        text = Path("page.html").read_text(encoding="utf-8")
    data = re.findall(r'type="application/json">(.*?)</script>', text, re.DOTALL)[0]
    return Ledger(text, hashlib.sha256(data.encode()).hexdigest())


def main() -> int:
    """Write all pictures: the upper part of each ledger, in few colours. The digest of the trace is
    a text in the file, so that an old picture is recognised. Returns the exit code."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        print("There is no Chromium. Use a machine that has it.", file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for picture in pictures():
            made = ledger(picture.command)
            tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
            tab.set_content(made.html)
            end = tab.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": end + 8}
            taken = tab.screenshot(full_page=True, clip=clip)
            info = PngInfo()
            info.add_text("kvproof", made.digest)
            image = Image.open(io.BytesIO(taken)).convert("RGB").quantize(COLOURS)
            image.save(picture.file, "PNG", optimize=True, pnginfo=info)
            print(f"{picture.file.name}: {picture.file.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
