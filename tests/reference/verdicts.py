"""The verdicts and the severities."""

from kvproof.model.severity import FAIL_ON, MEANINGS
from kvproof.strategies.verdict import Verdict
from tests.reference.markdown import table


def verdicts() -> str:
    """Each verdict with its exit code, and where its meaning is."""
    page = "../explanation/verdicts.md"
    return table(
        ("verdict", "exit code"),
        (
            (f"[`{each.value}`]({page}#{each.value.lower()})", str(each.exit_code))
            for each in Verdict
        ),
    )


def severities() -> str:
    """Each severity: its name for `--fail-on`, its meaning, and what it does by default."""
    return table(
        ("`--fail-on`", "such a check guards against", "exit code by default"),
        (
            (f"`{each.option}`", meaning, "1" if each <= FAIL_ON else "0")
            for each, meaning in MEANINGS.items()
        ),
    )
