"""A prompt of embeddings: D does not load what P has computed."""

from collections.abc import Iterator
from typing import Any

from tests.engine.findings.shown import PREFILL, Engine, Engines, Seen, Shown
from tests.engine.process import Output

LENGTH = 100


def look(engines: Engines) -> Iterator[Seen]:
    """The same embeddings on P and on D."""
    p, d = engines["P"], engines["D"]
    prefilled = ask(p, "prefill", 1, PREFILL)
    got = ask(d, "decode", 6, prefilled.transfer)
    yield Seen("tokens that D loads", d.inside("metric", "external_prefix_cache_hits"), LENGTH)
    yield Seen("tokens of D", got.tokens, ask(p, "plain", 6, None).tokens, wrong=False)


def ask(engine: Engine, name: str, answer: int, transfer: dict[str, Any] | None) -> Output:
    """The answer to the embeddings."""
    engine.inside(f"{__name__}:add", name, answer, transfer)
    return engine.answer(name)


def add(llm: Any, name: str, answer: int, transfer: dict[str, Any] | None) -> None:
    """A request with the embeddings arrives."""
    import torch
    from vllm import SamplingParams

    embeddings = torch.rand((LENGTH, 128), generator=torch.Generator().manual_seed(1)) - 0.5
    params = SamplingParams(
        max_tokens=answer,
        temperature=0,
        ignore_eos=True,
        detokenize=False,
        extra_args=transfer and {"kv_transfer_params": transfer},
    )
    llm.llm_engine.add_request(name, {"prompt_embeds": embeddings}, params)


EMBEDS = {"enable_prompt_embeds": True}
SHOWN = Shown(look, {"P": ("full", EMBEDS), "D": ("full", EMBEDS)})
