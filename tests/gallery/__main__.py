"""`python -m tests.gallery`: make the gallery and its pictures again. It needs Chromium."""

import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.gallery.shown import PAGE, SHOWN, Shown, output, page

WIDTH = 1400
COLOURS = 64


def main() -> int:
    """Write the page and all pictures. Returns the exit code."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        print("There is no Chromium. Use a machine that has it.", file=sys.stderr)
        return 2
    with _browser(executable) as browser:
        for shown in SHOWN:
            shown.file.parent.mkdir(exist_ok=True)
            shown.file.write_bytes(_picture(browser, shown))
            print(f"{shown.file.name}: {shown.file.stat().st_size // 1024} KiB")
    PAGE.write_text(page(), encoding="utf-8")
    return 0


@contextmanager
def _browser(executable: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield opened
        opened.close()


def _picture(browser: Any, shown: Shown) -> bytes:
    """The upper part of the page, without the explanations at its end, in few colours. The digest
    of the trace is a text in the file, so that an old picture is recognised."""
    made = output(shown)
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "page.html"
        html.write_text(made.html, encoding="utf-8")
        tab = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        tab.goto(html.as_uri())
        height = tab.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height + 8}
        taken = tab.screenshot(full_page=True, clip=clip)
        tab.close()
    info = PngInfo()
    info.add_text("kvproof", made.digest)
    out = io.BytesIO()
    image = Image.open(io.BytesIO(taken)).convert("RGB").quantize(COLOURS)
    image.save(out, "PNG", optimize=True, pnginfo=info)
    return out.getvalue()


if __name__ == "__main__":
    raise SystemExit(main())
