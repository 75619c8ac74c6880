"""Tiny models with random weights, as folders that vLLM loads without a network.

The weights are wider than those that a new model gets: else a token would hardly depend on the
tokens before it, and equal answers would show nothing.
"""

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

SEED = 1234
WIDTH = 0.2
"""The weights lie between -WIDTH and WIDTH, those of a norm around 1."""

VOCABULARY = 512

TINY: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

MODELS: dict[str, dict[str, Any]] = {
    "full": TINY | {"model_type": "llama", "num_hidden_layers": 2},
    "window": TINY
    | {
        "model_type": "gemma3_text",
        "num_hidden_layers": 4,
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "mamba": TINY
    | {
        "model_type": "lfm2",
        "num_hidden_layers": 4,
        "norm_eps": 1e-5,
        "block_dim": 128,
        "conv_dim": 128,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention"] * 2,
    },
}
MODELS["attention first"] = MODELS["mamba"] | {"layer_types": ["full_attention", "conv"] * 2}
MODELS["mamba2"] = TINY | {
    "model_type": "granitemoehybrid",
    "num_hidden_layers": 4,
    "layer_types": ["mamba", "attention"] * 2,
    "mamba_n_heads": 8,
    "mamba_d_head": 32,
    "mamba_d_state": 16,
    "mamba_chunk_size": 64,
    "num_local_experts": 0,
    "num_experts_per_tok": 0,
    "shared_intermediate_size": 128,
    "attention_multiplier": 0.25,
    "position_embedding_type": "nope",
}
MODELS["nemotron"] = TINY | {
    "model_type": "nemotron_h",
    "num_hidden_layers": 4,
    "hybrid_override_pattern": "M*M*",
    "head_dim": 32,
    "mamba_num_heads": 8,
    "mamba_head_dim": 32,
    "n_groups": 1,
    "ssm_state_size": 16,
    "chunk_size": 64,
}
MODELS["unequal"] = TINY | {
    "model_type": "gemma4_text",
    "num_hidden_layers": 4,
    "head_dim": 64,
    "global_head_dim": 32,
    "sliding_window": 40,
    "hidden_size_per_layer_input": 0,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
"""Full attention; a sliding window beside full attention; Mamba states beside full attention, in
the other order, and of a kind that NIXL accepts; a sliding window with smaller blocks."""


def folder(model: str, parent: Path) -> Path:
    """The folder of a model below `parent`. It is made by the first process that asks for it."""
    path = parent / model
    if not path.exists():
        made = Path(mkdtemp(dir=parent))
        _write(MODELS[model], made)
        try:
            os.rename(made, path)
        except OSError:  # another process was faster, and has written the same
            shutil.rmtree(made)
    return path


def _write(options: dict[str, Any], path: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**options, dtype="float32")
    model = AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for _, weights in sorted(model.named_parameters()):
            middle = 1.0 if weights.dim() == 1 else 0.0
            weights.uniform_(middle - WIDTH, middle + WIDTH, generator=generator)
    model.save_pretrained(path)
