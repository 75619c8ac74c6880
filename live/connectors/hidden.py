"""Hidden states of prompts that a connector saves to files (`ExampleHiddenStatesConnector`).

A drafter that only extracts keeps the hidden states of each token in a layer of its own, as others
keep KV. When a request has ended, the connector copies them to a file, and the client gets its path
with the answer. By then the states must be those of the prompt, whatever became of the blocks.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvproof.live import adapt
from kvproof.live.connectors.caches import NUMBERS, Caches
from kvproof.live.connectors.owners import Owners
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.connectors import StateSaved

PATH = "hidden_states_path"
"""The key of the path among the `kv_transfer_params` of an answer."""

STATES = "hidden_states"
"""The name of the states in a file."""


def model_layer() -> Any:
    """The drafter's layer in vLLM's forward context: the connector looks for this class."""
    import torch

    kind: Any = adapt.named("CacheOnlyAttentionLayer")
    layer = kind.__new__(kind)
    torch.nn.Module.__init__(layer)
    layer.kv_cache = torch.tensor([])
    return layer


def saved(
    answers: Mapping[str, Mapping[str, Any]], owners: Owners, caches: Caches
) -> Iterator[StateSaved]:
    """What the files have whose paths are in the answers, for each token of each prompt. Raises
    AdapterDrift if they have another form."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    layer = caches.layers[-1].name
    for name, answer in answers.items():
        path, prompt = answer.get(PATH), owners.prompts[name]
        if path is None:
            continue
        try:
            parts = load_file(Path(path))
        except (OSError, SafetensorError):
            parts = {STATES: torch.empty(0, 1)}  # there is no whole file
        if STATES not in parts:
            raise AdapterDrift(f"A file of hidden states of this vLLM has no {STATES}", STATES)
        states = list(parts[STATES].flatten(1))
        for token in range(len(prompt)):
            expected = owners.text(name, token + 1)
            if token >= len(states):
                yield StateSaved(name, token, expected, None, there=False)
                continue
            held = states[token]
            whole = bool((held == held[0]).all())
            found = NUMBERS.prefix(layer, float(held[0])) if whole else None
            yield StateSaved(name, token, expected, found, there=True)
