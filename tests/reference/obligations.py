"""This module makes the table of all obligations, as Markdown: the claim, its verdict, the ranges
of its numbers, and the fault that refutes it."""

from collections.abc import Sequence
from pathlib import Path

from kvproof.model.counting_abstraction.registry import systems
from kvproof.model.counting_abstraction.relation import not_projected
from kvproof.model.faults.registry import FAULTS
from kvproof.model.files.writing import replace
from kvproof.model.presets import CLUSTERS
from kvproof.proofs.induction import claimed
from kvproof.proofs.proof import Proof
from kvproof.proofs.prove import prove
from kvproof.proofs.registry import OBLIGATIONS
from kvproof.strategies.verdict import Verdict
from tests.refuted import all_refuted

HEAD = """# What is proved, for all sizes

`python -m tests.reference.obligations` writes this file. For each claim, Z3 searches for numbers
that break it and finds none. Claims are also evaluated on plain ints.
Each step of the explorer and of a sampled run of the model is projected to counts, and must be a
transition of these systems; tests ask the same of steps of live vLLM. Which steps are not projected
is said [below](#which-steps-are-compared-with-what-is-proved).
"""

ARITHMETIC = """## Arithmetic

Each obligation is one query about a rule, for all numbers in the ranges.

| obligation | what is claimed | verdict | for all | refuted by |
|---|---|---|---|---|
"""

INDUCTION = """## Induction

A request's block table in one cache group, its KV transfer from P to D, and an engine's block pool,
as transition systems of counts. A claim holds at the start, and each action keeps it if all claims
about the system hold before it. So it holds in every reachable state, for all sizes, any number of
steps, preemptions and reschedules, and any other requests.

| claim | what is claimed | of | verdict | steps | refuted by |
|---|---|---|---|---|---|
"""


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _verdict(proofs: Sequence[Proof]) -> str:
    for verdict in (Verdict.VIOLATED, Verdict.UNKNOWN):
        for proof in proofs:
            if proof.verdict is verdict:
                return f"{verdict.value}: {proof.reason or proof.id}"
    return Verdict.PROVED.value


def _arithmetic(proof: Proof) -> str:
    each = OBLIGATIONS[proof.id]
    cells = (_verdict([proof]), each.assumptions, f"`{each.killed_by}`")
    return _row(f"`{each.id}`", each.name, *cells)


def _refuted_by(ids: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in FAULTS if all_refuted(name) & set(ids))


def _induction(claim: str, proofs: Sequence[Proof]) -> str:
    about = [claimed()[p.id] for p in proofs]
    words = about[0].name.split(": ", 1)[1]
    return _row(
        f"`{claim}`",
        words,
        ", ".join(a.system for a in about),
        _verdict(proofs),
        sum(p.cases for p in proofs),
        _refuted_by([p.id for p in proofs]),
    )


def _sizes() -> str:
    """Name the parameters of the inductions."""
    lines = ["", "The sizes are numbers of any value, except:", ""]
    families = {"table": "full", "transfer": "transfer of full", "pool": "pool"}
    for family, name in families.items():
        system = systems()[name]
        given = getattr(system.given, "func", system.given)
        words = " ".join((given.__doc__ or "").split())
        fields = ", ".join(f"`{field}`" for field in system.parameters._fields)
        lines.append(f"- of a {family} ({fields}): {words}")
    return "\n".join(lines)


def _regions() -> str:
    """Say in which regions a released or proposed rule is right."""
    lines = ["", "## Where a rule is right, exactly", ""]
    for each in OBLIGATIONS.values():
        if each.claim.__module__.endswith("regions"):
            words = " ".join((each.claim.__doc__ or "").split())
            lines.append(f"- **{each.name}** ({each.origin}). {words}")
    return "\n".join(lines)


COMPARED = """
## Which steps are compared with what is proved

All block tables, pools and transfers of {whole} of the {all} presets are projected. Of the others
these are not, each for what the systems do not model; a preset may stand in several lines:

| not projected | of presets with | presets |
|---|---|---|
"""


def compared() -> str:
    """Say what of the presets is projected to counts, and what is not."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, cluster in CLUSTERS.items():
        for row in dict.fromkeys(not_projected(cluster)):
            rows.setdefault(row, []).append(name)
    partly = {name for names in rows.values() for name in names}
    head = COMPARED.format(whole=len(CLUSTERS) - len(partly), all=len(CLUSTERS))
    return head + "\n".join(
        _row(what, why, ", ".join(f"`{name}`" for name in names))
        for (what, why), names in sorted(rows.items())
    )


def table(proofs: Sequence[Proof]) -> str:
    """Return the table of these proofs. Pass all proofs, or the table is incomplete."""
    by_claim: dict[str, list[Proof]] = {}
    for proof in proofs:
        if proof.id in claimed():
            by_claim.setdefault(claimed()[proof.id].claim, []).append(proof)
    rows = [_arithmetic(p) for p in proofs if p.id in OBLIGATIONS]
    claims = [_induction(claim, found) for claim, found in by_claim.items()]
    first = ARITHMETIC + "\n".join(rows)
    second = INDUCTION + "\n".join(claims)
    return "\n".join((HEAD, first, "", second, _sizes(), compared(), _regions())) + "\n"


if __name__ == "__main__":
    replace(Path("reports/obligations.md"), table(prove()).encode())
