"""What the gallery shows, and what the program prints of it."""

import contextlib
import hashlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kvproof.cli.main import main

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "img"

LINES = 10
"""So many of the first printed lines are on the page."""

HEAD = """# Gallery

Counterexamples as kvproof shows them: the first lines in the terminal, and the block ledger
(`kvproof report TRACE --html FILE`). In the ledger a row is a request or a block, and a column is
the state after an event; the transfers of the last event are at the right. P is a prefill engine,
D a decode engine, E an engine alone; r0 and r1 are requests. A letter is a token, a dot a sampled
one. A bar below a block: it is in the prefix cache. A thick frame: the event changed it. A dotted
frame: a transfer names it. A red frame: it is broken there.

`python -m tests.gallery` makes this page and its pictures (it needs Chromium).
"""

STORIES = """## The defects for which kvproof was started

The model has each of them as a fault that can be switched on (`kvproof faults` lists all).
"""

FINDINGS = """## Findings in vLLM 0.32.0

Each is a trace of the real `Scheduler` and connector in [findings/](../findings/README.md).
"""


class Shown(NamedTuple):
    """A fault or a finding, with a title and two sentences. `picture` is the name of its file."""

    name: str
    title: str
    about: str
    finding: bool = False
    picture: str = ""

    @property
    def file(self) -> Path:
        """Its picture."""
        return PICTURES / f"{self.picture or self.name}.png"

    @property
    def command(self) -> list[str]:
        """The command that prints it."""
        if self.finding:
            return ["report", f"findings/{self.name}/trace.jsonl"]
        return ["explore", "--fault", self.name]


SHOWN = (
    Shown(
        "front_trim",
        "vllm#48633: block lists paired from the front",
        "D has the first four tokens of r1 in its own prefix cache and needs only the block after "
        "them. Its block 3 is paired with the first block of P, so the arrow of the transfer "
        "leans: both ends should stand above the same token.",
        picture="ledger",
    ),
    Shown(
        "decode_loads_whole_prompt",
        "vllm#37310: P and D disagree on N-1",
        "P leaves the last token of the prompt to D and sends the state of four tokens. D counts "
        "five tokens as loaded, and would apply its last token to a state that already has it.",
    ),
    Shown(
        "hit_needs_every_group_on_decode",
        "vllm#42547: D never hits",
        "D has the attention blocks of the prompt in its cache, and no Mamba state at their end. "
        "It gives up the hit of four tokens, although P sends the state in any case, and loads all "
        "of the prompt again.",
    ),
    Shown(
        "ssm_placeholders_not_trimmed",
        "vllm#42554: placeholders before the Mamba state",
        "The list of P's Mamba group has a placeholder, the null block, for each block before the "
        "state, and D's list has the state alone. The lists are not equally long, and the state of "
        "D would be filled from the null block.",
    ),
    Shown(
        "state_only_at_last_boundary",
        "vllm#43628: one state for a whole prompt",
        "Three prompts share the first tokens, and each was computed in one step that kept the "
        "state at its last block boundary only. The third finds the attention block of the shared "
        "tokens but no state there, and is computed from its first token.",
    ),
    Shown(
        "window_of_loaded_tokens",
        "`window_of_loaded_tokens`",
        "P frees the block that has left the sliding window, counted from the token after the "
        "prompt. D computes the last token of the prompt again, which reads one token further to "
        "the left, and finds the null block there.",
        finding=True,
    ),
    Shown(
        "uncomputed_stays_cached",
        "`uncomputed_stays_cached`",
        "Block 4 is put into the prefix cache when the step is scheduled. In the same step r0 is "
        "preempted, so the block stays in the cache under a token that was never computed.",
        finding=True,
    ),
    Shown(
        "end_trim_across_ratios",
        "`end_trim_across_ratios`",
        "A block of P has two kernel blocks and a block of D has one, so the list of P ends with "
        "padding. The surplus is cut off at the front, and each kernel block goes to a block of D "
        "that stands for earlier tokens.",
        finding=True,
    ),
    Shown(
        "lease_ends_under_writer",
        "`lease_ends_under_writer`",
        "P's lease ends while P still writes the blocks of r0 to D, and the blocks are given to "
        "r1. D receives the KV of r1 as that of r0, with a report of success.",
        finding=True,
    ),
    Shown(
        "held_list_ends_with_prompt",
        "`held_list_ends_with_prompt`",
        "D keeps the blocks of its answer for the next turn, and the next turn is the same prompt "
        "again. The list of D ends with the answer and is trimmed at its front, so a block of the "
        "prompt is filled with the KV of the answer.",
        finding=True,
    ),
)


class Output(NamedTuple):
    """The first lines that are printed, the page of the block ledger, and what it has of the
    trace as one number."""

    lines: tuple[str, ...]
    html: str
    digest: str


@cache
def output(shown: Shown) -> Output:
    """What the program prints and writes of it."""
    with tempfile.TemporaryDirectory() as folder, _inside(ROOT if shown.finding else Path(folder)):
        lines = tuple(_printed(shown.command)[:LINES])
        trace = shown.command[1] if shown.finding else str(next(Path("kvproof-traces").iterdir()))
        html = Path(folder) / "page.html"
        _printed(["report", trace, "--html", str(html)])
        text = html.read_text(encoding="utf-8")
    data = re.findall(r'type="application/json">(.*?)</script>', text, re.DOTALL)[0]
    return Output(lines, text, hashlib.sha256(data.encode()).hexdigest())


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _printed(argv: list[str]) -> list[str]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        main(argv)
    return out.getvalue().splitlines()


def page() -> str:
    """The text of docs/gallery.md."""
    parts = [HEAD, STORIES, *(_part(each) for each in SHOWN if not each.finding)]
    parts += [FINDINGS, *(_part(each) for each in SHOWN if each.finding)]
    return "\n".join(parts)


def _part(shown: Shown) -> str:
    lines = "".join(f"    {line}".rstrip() + "\n" for line in output(shown).lines)
    title = f"[{shown.title}](../findings/{shown.name}/issue.md)" if shown.finding else shown.title
    alt = f"The block ledger of {shown.name}"
    return (
        f"### {title}\n\n{_folded(shown.about)}\n\n    $ kvproof {' '.join(shown.command)}\n"
        f"{lines}    ...\n\n![{alt}](img/{shown.file.name})\n"
    )


def _folded(text: str) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > 108:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)
