"""The result of a search, as lines for a reader: the answer first."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kvproof.gate.connectors.search import PlanSearch
from kvproof.gate.difference.judged import Break
from kvproof.live.connectors.judging import CONTRACT
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.fakes.store_client import ANY, ASKED, FAILED
from kvproof.model.counted import counted
from kvproof.model.plans.connector import ConnectorPlan, lines

FINDINGS_MAX = 3
"""The largest number of findings that are shown."""


def shown(subject: TestedConnector, searched: PlanSearch) -> Iterator[str]:
    """The lines of a report: the verdict, the reasons, the numbers of what was done and of what was
    judged."""
    in_all = counted(searched.episodes, "episode")
    if searched.played is not None:
        yield from of_violation(searched.played.plan, searched.breaks)
        if searched.needs_earlier:
            yield "Alone, in a fresh process, this plan breaks no such rule: it needs what earlier"
            yield "episodes left behind. Use the same seed and examples to see it again."
    elif searched.nothing_judged:
        yield f"UNKNOWN: {subject.name} promised no load in {in_all}."
        yield "Nothing of its loads was judged. Use more --examples, or --extra with settings with"
        yield "which it loads."
    else:
        whole = "no grave check" if searched.tolerated else "no check"
        new = " in a new way" if searched.known else ""
        yield f"SAMPLED: {subject.name} broke {whole}{new} in {in_all}."
        yield from _tolerated(searched)
    yield (
        f"{in_all}, {searched.steps} steps; judged: "
        f"{searched.judged['promised tokens']:,} slots of promised tokens, "
        f"{searched.judged['writes']:,} slots that the connector wrote{_saved(searched)}."
    )
    yield from _came_of(searched.judged)
    if searched.tries:
        yield f"{counted(searched.tries, 'episode')} more made the plan smaller."
    for name, count in sorted(searched.known.items()):
        yield f"Known: in {counted(count, 'episode')} {name} (findings/ has what it is)."
    yield from _left_out(searched)
    for reason, plans in searched.unplayed.items():
        yield f"Not played: {counted(plans, 'plan')}. {reason}."
    if searched.played is not None or searched.nothing_judged:
        yield from _tolerated(searched)


def _left_out(searched: PlanSearch) -> Iterator[str]:
    """A line for each reason why cache groups were left out, with the first of them."""
    whys = {
        kinds: f": the connector cannot be made ({why})" for kinds, why in searched.refused.items()
    }
    whys |= {groups.words: f". {lacks}" for groups, lacks in searched.lacking.items()}
    for why, times in Counter(whys.values()).items():
        first = next(words for words, reason in whys.items() if reason == why)
        others = f", nor with {counted(times - 1, 'other list')} of groups" if times > 1 else ""
        yield f"Not driven with the cache groups {first}{others}{why}."


def _came_of(judged: Counter[str]) -> Iterator[str]:
    """The lines about what was asked, held, offered, loaded, refused, and what failed."""
    yield (
        f"Of {judged['requests that began']:,} requests, {judged['offers']:,} were offered tokens "
        f"and {judged['loads']:,} loaded; {judged['kept requests']:,} were kept for another; "
        f"{judged['loads that failed']:,} loads and {judged['blocks that were not loaded']:,} "
        f"blocks failed; {judged['resets that were refused']:,} resets were refused."
    )
    failed = {each.removeprefix(FAILED): n for each, n in judged.items() if each.startswith(FAILED)}
    for call in (each.removeprefix(ASKED) for each in judged if each.startswith(ASKED)):
        came = failed.get(call, 0) if call != ANY else sum(failed.values())
        yield f"{judged[ASKED + call]:,} of the next {call}s were asked to fail, and {came:,} did."


def _saved(searched: PlanSearch) -> str:
    states = searched.judged["saved hidden states"]
    return f", {states:,} saved hidden states" if states else ""


def _tolerated(searched: PlanSearch) -> Iterator[str]:
    """The lines about broken checks that end no search."""
    for name, count in sorted(searched.tolerated.items()):
        rule = CONTRACT[name]
        yield f"But {name}: {rule.severity.words}, in {counted(count, 'episode')}."
        yield f"It must be true that {rule.name}."


def of_violation(plan: ConnectorPlan, breaks: Sequence[Break]) -> Iterator[str]:
    """The lines about a violation: the check, the reasons, and the plan that leads to it."""
    first, at = CONTRACT[breaks[0].signature.check], breaks[0].at
    yield f"VIOLATED {first.id} (severity: {first.severity.words})"
    yield f"It must be true that {first.name} ({first.origin})."
    for one in breaks[:FINDINGS_MAX]:
        *why, yet = one.finding.sentences
        yield f"  because  {'; '.join(why)}"
        yield f"  yet      {yet}"
    more = len(breaks) - FINDINGS_MAX
    if more > 0:
        yield f"  and {more} more"
    yield "What was done:"
    for number, line in enumerate(lines(plan)):
        yield f"{'->' if number == at else '  '} {line}"
    if at > len(plan.actions):
        yield "->   then the engine runs until it has nothing more to do"
