"""What must be true of the bytes of blocks.

These invariants are not in the registry: a state of the model has tokens and no bytes, so no search
could judge them, and no fault of the reference could violate them. Only a real worker can. The
sanitizer judges them (`watch/bytes`), and `kvproof report P D` compares two engines.
"""

from kvproof.model.severity import Severity

CACHED = "cached_bytes_do_not_change"
"""A block in the prefix cache keeps its bytes, in every layer, from the end of the step that filled
it until it is evicted. The same tokens may be computed again in their place, as the last token of a
loaded prompt is. An attention block that is cached before it is full is not judged: slots behind
its key are still written."""

TRANSFERRED = "transferred_bytes_are_equal"
"""The blocks of a finished request that its connector sends keep their bytes until they are freed.
After the transfer the receiver's blocks have the same bytes; `kvproof report P D` compares them."""

LOADED = "loaded_bytes_were_computed"
"""Where a connector loads tokens that this engine has computed before, each block gets the bytes
that these tokens had then. It is judged of full blocks of attention groups in a store that this
engine fills: neither of a load from another engine, nor of one that has failed."""

NULL = "null_block_is_never_written"
"""Nothing writes to the null block. Padded tokens have no slot, so this holds where all layers are
attention layers. It is not judged where a part of vLLM writes to it on purpose: the Mamba layers of
a dummy step, the attention backend HPC_ATTN (padded tokens), the warm-up of elastic EP."""

SEVERITIES = {
    CACHED: Severity.WRONG_TOKENS,
    LOADED: Severity.WRONG_TOKENS,
    TRANSFERRED: Severity.WRONG_TOKENS,
    NULL: Severity.BOOKKEEPING,
}
"""The most severe consequence of each. What the null block holds is masked out where it is read."""
