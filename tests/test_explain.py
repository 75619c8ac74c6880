"""`kvproof explain`: every name that kvproof prints is explained, from where it is declared."""

from typing import Any, get_args, get_type_hints

import pytest

from kvproof.cli.explanations import every_name, explanations
from kvproof.cli.main import main, parser
from kvproof.cli.replay import DIFFERS
from kvproof.gate.side import around_scheduler, known_plans
from kvproof.invariants.of_bytes import SEVERITIES
from kvproof.invariants.registry import CHECKS
from kvproof.live.connectors.judging import CONTRACT
from kvproof.live.contract.features import FEATURES as OF_CONTRACT
from kvproof.live.known.registry import KNOWN
from kvproof.live.known.traces import FOLDER
from kvproof.model.config.features.registry import FEATURES
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS, LIVE_CLUSTERS
from kvproof.model.severity import Severity
from kvproof.proofs.prove import everything
from kvproof.reports.gate_output import Gate
from kvproof.strategies.count_conformance import CONFORMANCE
from kvproof.strategies.verdict import Verdict
from tests.findings import FINDINGS
from tests.sentences import two_sentences

GATE = {
    name
    for each in get_args(get_type_hints(Gate)["verdict"])
    for name in (get_args(each) or (each,))
}
"""The verdicts of a gate."""


def test_every_name_is_explained() -> None:
    printed = {
        *(*CHECKS, *CONTRACT, *around_scheduler.CHECKS, *SEVERITIES, CONFORMANCE),
        *(each for each, _ in known_plans.plans()),
        *(*FAULTS, *KNOWN, *FINDINGS, *CLUSTERS, *LIVE_CLUSTERS, *FEATURES, *OF_CONTRACT),
        *(*everything(), *(each.value for each in Verdict), DIFFERS, *GATE),
        *(name for each in Severity for name in (each.words, each.option)),
    }
    assert printed <= set(every_name())
    for name in every_name():
        told = list(explanations(name))
        assert told
        for each in told:
            assert each.name == name
            assert each.sentence.endswith("."), name
            for command in each.see:
                program, *words = command.split()
                if program == "kvproof":
                    parser().parse_args(words)


@pytest.mark.parametrize(("name", "apart"), [("window-drafts", True), ("drafts", False)])
def test_a_preset_that_no_start_up_makes_says_so(name: str, apart: bool, run: Any) -> None:
    _, out, _ = run("explain", name)
    assert ("No start-up of vLLM" in out) is apart


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("refernces_exact", "Use references_are_exact"),
        ("qqqqq", "Use a name that kvproof explain KIND lists"),
        ("is_free", "Use free."),  # and not settled_frees
    ],
)
def test_an_unknown_name_gives_the_nearest(name: str, hint: str, refused: Any) -> None:
    said = refused("explain", name)
    assert hint in said
    assert two_sentences(said)


def test_what_an_answer_says_is_explained(run: Any, as_json: Any) -> None:
    for name in ("Schedule", "Admit", "sending", "states_distinct", "unseen_at_most", "reproduced"):
        assert run("explain", name)[0] == 0, name
    assert "Complete" in run("explain", "Scheduler.update_from_output")[1]
    assert run("explain", "random:18")[1].startswith("random:18: a cluster that a seed makes")
    assert len(as_json("explain", "configs")[1]["explanations"]) > 5
    kinds = as_json("explain")[1]["kinds"]
    pages = {path.parent for each in ("issue", "README") for path in FOLDER.glob(f"*/{each}.md")}
    assert f"{len(pages)} with a page in findings/" in kinds["findings"]["says"]


def test_a_pull_request_names_what_comes_from_it(capsys: pytest.CaptureFixture[str]) -> None:
    for written in ("vllm#37310", "37310", "#37310"):
        names = {each.name for each in explanations(written)}
        assert {"prefill_and_decode_agree", "decode_loads_whole_prompt"} <= names
        assert all("vllm#37310" in each.origin for each in explanations(written))
    assert main(["explain", "vllm#37310"]) == 0
    out = capsys.readouterr().out
    assert "kvproof explore --fault decode_loads_whole_prompt" in out
    assert main(["explain", "vllm#1000000"]) == 2
    assert two_sentences(capsys.readouterr().err)
