"""What the gate answered to each planted change: answers.json, by the name of the change."""

from typing import Any

from benchmarks.kept import Answer, Answers
from benchmarks.planted.mistakes import HERE, Mistake

ANSWERS = Answers(HERE / "answers.json")

SEEN = ("seen ", "not confirmed: ")
"""How the gate begins to tell of what it has seen, and has not confirmed or weighed in time."""


def of(mistake: Mistake) -> Answer | None:
    """The answer to a planted change as it stands now; None where there is none."""
    answer = ANSWERS.of(mistake.name, mistake.digest)
    return None if answer is None or starved(answer) else answer


ENDS_BY_TIME = 0.8
"""A gate that took less than this part of its budget ended by itself."""


def starved(answer: Answer) -> bool:
    """Whether a gate knew nothing because its time ended and other work had the processors. On two
    idle cores it uses more processor time than its budget."""
    budget_s = answer["budget_s"]
    by_time = answer["verdict"] == "UNKNOWN" and answer["seconds"] >= ENDS_BY_TIME * budget_s
    return bool(by_time and (answer["processor_s"] or 0) < budget_s)


def keep(mistake: Mistake, gate: Answer) -> Answer:
    """Keep what the page needs of a gate's whole answer."""
    findings = [f for f in gate.get("findings", ()) if f["kind"] == "introduced"]
    answer = {
        "digest": mistake.digest,
        **{name: gate[name] for name in ("verdict", "exit_code", "date", "kvproof", "seed")},
        "seconds": gate.get("seconds", 0),
        "processor_s": gate.get("processor_s"),
        "budget_s": gate["budget_s"],
        "reason": gate.get("reason", ""),
        "introduced": sorted({f["invariant"] for f in findings if f["fails"]}),
        "below": sorted({f["invariant"] for f in findings if not f["fails"]}),
        "costs": [told(cost) for cost in gate.get("costs", ())],
        "runs": gate.get("watched", 0),
        "effect": sum(f["effect"] for f in gate.get("functions", ())),
        "not_told": [text for text in gate.get("not_run", ()) if text.startswith(SEEN)],
    }
    ANSWERS.keep(mistake.name, answer)
    return answer


def told(cost: dict[str, Any]) -> str:
    """A cost in a few words: the quantity, or the check with its excuses."""
    return str(cost.get("what") or cost.get("invariant") or cost)
