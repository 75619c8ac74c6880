"""The text of a reproducer: what must be true, what happens, and the assertion."""

import re
from typing import Any

from kvproof.invariants.registry import CHECKS
from kvproof.live.reproducer import script
from kvproof.live.reproducer.choosing import MUST_NOT_RAISE, Expectation
from kvproof.live.reproducer.drafting import Draft
from kvproof.live.reproducer.layout import WIDTH, assigned, call, comment, literal, message, prose
from kvproof.model.finding import Finding

RUN = "python -m pytest --noconftest -p no:cacheprovider"


def file_stem(name: str) -> str:
    """The name of the file without its suffix."""
    return "test_" + re.sub(r"\W", "_", name)


def generated(draft: Draft, claim: Expectation, name: str) -> str:
    """The whole file."""
    last = _assertion(draft, claim)
    lines = script.body(draft.script, claim.piece, last)
    test = re.sub(r"\W", "_", draft.finding.invariant)
    doc = _docstring(draft.finding, name)
    return script.text(draft.settings, doc, test, lines)


def _sentence(finding: Finding) -> tuple[str, str]:
    """What must be true, and where it comes from."""
    check = CHECKS.get(finding.invariant)
    if check is None:
        return finding.invariant, ""
    return check.name, check.origin if "vllm#" in check.origin else ""


def _docstring(finding: Finding, name: str) -> list[str]:
    sentence, origin = _sentence(finding)
    return [
        *prose(f"What must be true: {sentence}{f' ({origin})' if origin else ''}.", opens=True),
        "",
        *prose(f"What happens: {finding.sentence}."),
        "",
        f"Run: {RUN} {file_stem(name)}.py",
    ]


def _assertion(draft: Draft, claim: Expectation) -> list[str]:
    """The last lines of the test. A statement that raises needs none."""
    if claim.fact is None:
        return comment("The last statement must not raise.", 4)
    if claim.expected is MUST_NOT_RAISE:
        return [*comment("This must not raise.", 4), f"    {claim.fact.source}"]
    source, sentence = claim.fact.source, _sentence(draft.finding)[0]
    before: list[str] = []
    checked = _checked(source, claim.expected)
    if len(f"    assert {checked}, (") > WIDTH:
        before = [*call(f"seen = {source}", [], "", 4), *assigned("expected", claim.expected, 4)]
        checked = "seen == expected"
    one = f"    assert {checked}, {literal(sentence)}"
    if len(one) <= WIDTH:
        return [*before, one]
    return [*before, f"    assert {checked}, (", *message(sentence, 8), "    )"]


def _checked(source: str, expected: Any) -> str:
    """The condition that an expression has a value."""
    if expected is True:
        return source
    if expected is False:
        return source.replace(" in ", " not in ", 1) if " in " in source else f"not {source}"
    return f"{source} is None" if expected is None else f"{source} == {literal(expected)}"
