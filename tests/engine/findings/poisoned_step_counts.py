"""Steps overlap, and a load within one of them fails."""

from collections.abc import Iterator

from tests.engine.findings.failed_load_stays_cached import STORE, begin, store
from tests.engine.findings.shown import INSIDE, Engines, Seen, Shown
from tests.engine.workloads import tokens

PROMPT = tokens(3, 200)


def look(engines: Engines) -> Iterator[Seen]:
    """The request whose load fails. With the patch its tokens are still wrong: the model runner
    keeps those of the failed steps."""
    engine = engines["E"]
    begin(engine)
    cold = engine.ask(PROMPT, 3).tokens
    assert engine.reset()
    yield Seen("tokens, loaded", engine.ask(PROMPT, 3).tokens, cold, wrong=False)
    assert engine.reset()
    engine.fill(200, 6)
    engine.inside(f"{STORE}:fail", True)
    yield Seen("how the request ends", engine.ask(PROMPT, 3).reason, "length")


SHOWN = Shown(look, store({}), before=(["call", f"{INSIDE}:overlapping_steps"],))
