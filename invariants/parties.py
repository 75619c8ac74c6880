"""The blocks that a KV transfer reads and writes, as the transfer itself names them."""

from collections.abc import Iterator

from kvproof.model.because import Reason, reason
from kvproof.model.config import Cluster, EngineConfig
from kvproof.model.config.sides import giver, taker
from kvproof.model.phases import Phase
from kvproof.model.state import NULL, State, Transfer

WRITTEN = (Phase.REGISTERED, Phase.READING, Phase.OVERDUE)
"""Phases in which the receiver's blocks may be written."""


def kernel_block(engine: EngineConfig, block: int) -> Reason:
    """A kernel block in a pair of an attention group, as a part of a reason."""
    ratio = engine.physical_per_logical
    sentence = "kernel block {block} of {engine} (in its block {within})"
    if ratio == 1:
        sentence = "block {block} of {engine}"
    return reason("block", sentence, block=block, engine=engine.name, within=block // ratio)


def logical(engine: EngineConfig, group: int, kernel_blocks: tuple[int, ...]) -> set[int]:
    """The blocks of an engine to which these kernel blocks belong. The pairs of attention groups
    have kernel blocks; the pairs of Mamba groups have whole blocks."""
    ratio = engine.physical_per_logical if engine.groups[group].attention else 1
    return {block // ratio for block in kernel_blocks}


def blocks_filled(cluster: Cluster, transfer: Transfer) -> set[int]:
    """The receiver's blocks that a transfer fills: the blocks of its pairs. Where there are no
    pairs (yet), the blocks that the receiver gave to its connector to be filled."""
    sink = taker(cluster, transfer.request).engine
    lists = (logical(sink, group, ids) for group, (ids, _) in enumerate(transfer.pairs))
    return set().union(*(lists if transfer.pairs else transfer.local)) - {NULL}


def blocks_sent(cluster: Cluster, transfer: Transfer) -> set[int]:
    """The sender's blocks that a transfer reads: the blocks of its pairs. Where there are no pairs
    (yet), the blocks that the sender offers."""
    source = giver(cluster, transfer.request).engine
    lists = (logical(source, group, ids) for group, (_, ids) in enumerate(transfer.pairs))
    return set().union(*(lists if transfer.pairs else transfer.remote)) - {NULL}


def filled_by(cluster: Cluster, state: State, engine: str) -> dict[int, str]:
    """The blocks of an engine that transfers fill beside its steps, each with its request."""
    return {
        block: request
        for request, transfer in _writing(cluster, state, engine)
        for block in blocks_filled(cluster, transfer)
    }


def given_to_connector(cluster: Cluster, state: State, engine: str) -> dict[int, str]:
    """The blocks of an engine that its connector got for transfers that fill blocks, each with its
    request. They may be more than the transfers fill."""
    return {
        block: request
        for request, transfer in _writing(cluster, state, engine)
        for blocks in transfer.local
        for block in blocks
    }


def _writing(cluster: Cluster, state: State, engine: str) -> Iterator[tuple[str, Transfer]]:
    for transfer in state.transfers:
        sink, taken = taker(cluster, transfer.request)
        if sink.name == engine and transfer.phase in WRITTEN:
            yield taken, transfer
