"""A fake worker of an engine: a model runner that computes numbers, and the real worker side of the
connector.

It follows vLLM's model runners (`ActiveKVConnector`; the first one: `first_runner`) call by call.
Block tables are kept from the scheduler's outputs alone. In each layer, the new tokens are written
first, then the connector is asked to have the layer loaded, then attention reads, then the layer is
saved.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvproof.live import adapt, build
from kvproof.live.batch import ComputedPart
from kvproof.live.connectors import first_runner, hidden
from kvproof.live.connectors.caches import (
    Caches,
    LayerCache,
    Shards,
    backend,
    latent_backend,
    layout,
)
from kvproof.live.connectors.encoder import EncoderCache
from kvproof.live.connectors.owners import Owners, read_from
from kvproof.live.contract.lookup import may_take
from kvproof.live.fakes.clock import Clock
from kvproof.model.config import Group
from kvproof.model.facts.connectors import Fact, Slot, SlotsRead, WrongSlot
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.state import Table

DRAFT = "~"
"""A draft token that is rejected."""

ELSEWHERE = -1
"""The slot of a token that another rank has (vLLM's `PAD_SLOT_ID`)."""


class ConnectorWorker:
    """The worker of a rank. `facts` collects the facts about its connector; `owners` says which
    request holds a block, as the scheduler has it; `clock` is the time of its copies. `sharing`
    maps each layer without a cache of its own to the layer whose cache it reads. `tables` has the
    block tables of the requests."""

    def __init__(
        self,
        plan: ConnectorPlan,
        scheduler: Any,
        owners: Owners,
        facts: list[Fact],
        clock: Clock,
        rank: int = 0,
    ) -> None:
        from vllm.config import set_current_vllm_config
        from vllm.distributed.kv_transfer import kv_transfer_state
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
        from vllm.v1.worker.gpu.kv_connector import ActiveKVConnector

        self.plan, self.cfg = plan, plan.engine
        self.owners, self.facts, self.clock = owners, facts, clock
        self.vllm_config = scheduler.vllm_config
        if plan.ranks > 1:
            self.vllm_config = of_rank(self.vllm_config, rank)
        self.rank = rank
        self._enter()
        clock.kernel_tokens, clock.ahead = plan.kernel_tokens, plan.clock_ahead
        order = layout(self.vllm_config)
        served = build.ServedModel(latent=plan.latent, uneven=plan.uneven)
        heads = served.heads if plan.tensor else 1
        shards = Shards(rank, plan.ranks // plan.stripes, heads, plan.parts_of_states)
        kernel = plan.kernel_blocks
        kv_cache_config = served.of_worker(scheduler.kv_cache_config)
        names = [name for group in kv_cache_config.kv_cache_groups for name in group.layer_names]
        self.sharing = {f"layers.{len(names)}.attn": names[0]} if plan.shared_layer else {}
        self.tables: Mapping[str, tuple[Table, ...]] = {}
        if plan.uncut:
            self.vllm_config.scheduler_config.disable_chunked_mm_input = True
        ahead = int(plan.drafts_of_layers > 0)
        self.encoder = EncoderCache(plan.encoder_tokens, self.vllm_config, ahead)
        self.encoder.fit(scheduler)
        context = self.vllm_config.compilation_config.static_forward_context
        context |= {name: model_layer(plan.latent) for name in (*names, *self.sharing)}
        if plan.hidden:
            context[names[-1]] = hidden.model_layer()
        self.state = kv_transfer_state
        with set_current_vllm_config(self.vllm_config):
            self.connector = KVConnectorFactory.create_connector(
                self.vllm_config, KVConnectorRole.WORKER, kv_cache_config
            )
            self.state._KV_CONNECTOR_AGENT = self.connector
            across = None
            if plan.first_runner and not plan.latent:
                across = first_runner.across_layers(self.vllm_config, kv_cache_config, kernel)
            made = None if across is None else across.named
            self.caches = Caches(kv_cache_config, order, shards, kernel, made)
            self.caches.named |= {name: self.caches.named[of] for name, of in self.sharing.items()}
            for name, cache in self.caches.named.items():
                context[name].kv_cache = cache
            memory = self.caches.memory.items()
            clock.order.caches |= {at: each.now.nbytes for at, each in memory}
            self.calls: Any = None
            if across is not None:
                from vllm.distributed.kv_transfer.kv_connector.utils import copy_kv_blocks

                self.connector.register_cross_layers_kv_cache(across.whole, across.backend)
                self.connector.set_host_xfer_buffer_ops(copy_kv_blocks)
                owners.counted["workers with all layers in a block"] += 1
            else:  # it registers the caches
                self.calls = ActiveKVConnector(self.vllm_config, self.caches.named)

    def execute(
        self, output: Any, parts: list[ComputedPart], tables: Mapping[str, tuple[Table, ...]]
    ) -> dict[str, Any]:
        """Carry out one `SchedulerOutput`, with these parts of requests that have these block
        tables. Returns the reports of the connectors, by the fields of a `ModelRunnerOutput`."""
        self.tables = tables
        if not self.rank:
            self.clock.tick()
        self._enter()
        self.state._KV_CONNECTOR_AGENT = self.connector
        self.note_writes()  # of copies in the background, since the last step
        more: dict[str, Any] = {}
        if self.encoder.room:
            if (loaded := self.encoder.compute(output)) is not None:
                more["ec_connector_output"] = loaded
            self.facts.extend(self.encoder.done)
            if self.encoder.alone:
                return more
            starts = {part.request: part.start for part in parts}
            self.facts.extend(self.encoder.reads(output, starts))
        if self.plan.first_runner:
            # Blocks are not zeroed or copied yet, although they already are when Model Runner V2
            # reports preemptions to its connector.
            self.connector.handle_preemptions(output.kv_connector_metadata)
            self.note_writes()
        self.caches.erase(adapt.zeroed(output) or ())
        for pair in adapt.block_copies(output, self.cfg.partial_block_hits):
            self.caches.copy(*pair)
        self.caches.look()
        if not parts and self.plan.first_runner:
            moved = first_runner.no_forward(output, self.vllm_config).kv_connector_output
        elif not parts:
            moved = self.calls.no_forward(output).kv_connector_output
        else:
            moved = self._forward(output, parts)
        self.note_writes()
        self._note_order()
        if moved is not None:
            more["kv_connector_output"] = moved
        return more

    def _enter(self) -> None:
        """Make this worker the one that works."""
        clock, plan = self.clock, self.plan
        clock.rank, clock.ranks, clock.stripes = self.rank, plan.ranks, plan.stripes

    def _forward(self, output: Any, parts: list[ComputedPart]) -> Any:
        from vllm.forward_context import set_forward_context

        metadata = {layer.name: self._metadata(layer, parts) for layer in self.caches.layers}
        metadata |= {name: metadata[of] for name, of in self.sharing.items()}
        with set_forward_context(metadata, self.vllm_config):
            if self.plan.first_runner:
                drafts = self.vllm_config.speculative_config is not None
                with first_runner.forward(output, drafts=drafts) as report:
                    self._pass(parts, metadata)
                return report
            self.calls.pre_forward(output)
            self._pass(parts, metadata)
            return end_forward(self.calls, output)

    def _pass(self, parts: list[ComputedPart], metadata: dict[str, "Metadata"]) -> None:
        self.note_writes()
        for layer in self.caches.layers:
            self._compute(layer, parts)
            self.clock.order.compute(self._filled(layer, parts))
            self.caches.look()
            self.connector.wait_for_layer_load(layer.name)
            self.note_writes()
            self.facts.extend(self.owners.loaded_at_once(self.caches, layer))
            self._read(layer, parts)
            cache = self.caches.named[layer.name]
            self.connector.save_kv_layer(layer.name, cache, metadata[layer.name])
        for name in self.sharing:
            self.connector.wait_for_layer_load(name)
            self.note_writes()
            self.connector.save_kv_layer(name, self.caches.named[name], metadata[name])

    def _metadata(self, layer: LayerCache, parts: list[ComputedPart]) -> "Metadata":
        group = self.cfg.groups[layer.group]
        here = group.block_size // self.owners.ranks if group.attention else group.block_size
        mapping = []
        for part in parts:
            table = self.tables[part.request][layer.group]
            for token in range(part.start, part.end + part.rejected):
                place = self._place(group, table, token)
                mapping.append(place[0] * here + place[1] if place else ELSEWHERE)
        return Metadata(mapping)

    def _place(self, group: Group, table: tuple[int, ...], token: int) -> tuple[int, int] | None:
        """The block of a token, and its slot in the block; None if another rank has it."""
        offset = self.owners.offset(group, token, self.rank)
        return None if offset is None else (table[token // group.block_size], offset)

    def _compute(self, layer: LayerCache, parts: list[ComputedPart]) -> None:
        group = self.cfg.groups[layer.group]
        states: list[WrongSlot | None] = []
        for part in parts:
            text = self.text(part.request, part.end)
            beside = len(text) - part.end
            table = self.tables[part.request][layer.group]
            if group.attention:
                for token in range(part.start, part.end + part.rejected):
                    if place := self._place(group, table, token):
                        known = text[: beside + token + 1] if token < part.end else text + DRAFT
                        self.caches.write(layer, *place, known)
            else:
                block = table[(part.end - 1) // group.block_size]
                if part.start:
                    states.append(self._read_state(layer, part))
                if self.plan.every_state:
                    size = group.block_size
                    for whole in range(part.start // size + 1, (part.end - 1) // size + 1):
                        state = self.text(part.request, whole * size)
                        self.caches.write(layer, table[whole - 1], 0, state)
                self.caches.write(layer, block, 0, text)
        self._note_reads(len(states), [each for each in states if each is not None])

    def _note_reads(self, number: int, wrong: Sequence[WrongSlot]) -> None:
        """Record that a step read this number of slots of a layer, some of them `wrong`."""
        if number:
            self.facts.append(SlotsRead(number - len(wrong), tuple(wrong)))

    def _filled(
        self, layer: LayerCache, parts: list[ComputedPart]
    ) -> Iterator[tuple[int, int, str, int]]:
        """The blocks that a step fills: the first and last byte of each, its layer and its id."""
        size = self.cfg.groups[layer.group].block_size
        for part in parts:
            table = self.tables[part.request][layer.group]
            for block in table[part.start // size : -(-part.end // size)]:
                yield *self.caches.bytes_of(layer, block), layer.name, block

    def _read_state(self, layer: LayerCache, part: ComputedPart) -> WrongSlot | None:
        """Read the state after the tokens before a step, with which a step of a Mamba layer begins.
        Returns it if it is wrong."""
        size = self.cfg.groups[layer.group].block_size
        block = self.tables[part.request][layer.group][(part.start - 1) // size]
        slot = Slot(layer.name, layer.group, block, 0)
        expected = self.text(part.request, part.start)
        found = self.caches.found(layer, block, 0)
        if found == expected:
            return None
        return WrongSlot(part.request, slot, part.start - 1, expected, found)

    def _read(self, layer: LayerCache, parts: list[ComputedPart]) -> None:
        """Read the slots that attention reads, and record how many hold the prefix that it needs,
        and the others."""
        group = self.cfg.groups[layer.group]
        of_drafter = self.plan.hidden and layer.group == len(self.cfg.groups) - 1
        if not group.attention or of_drafter:
            return  # cannot be judged: states are read elsewhere, and hidden states by no step
        number, wrong = 0, []
        for part in parts:
            text = self.text(part.request, part.end)
            beside = len(text) - part.end
            table = self.tables[part.request][layer.group]
            first = read_from(group, part.start, self.plan.local)
            tokens = {token: self._place(group, table, token) for token in range(first, part.end)}
            read = [(token, place) for token, place in tokens.items() if place]
            number += len(read)
            expected = [text[: beside + token + 1] for token, _ in read]
            for n in self.caches.unlike(layer, [place for _, place in read], expected):
                token, place = read[n]
                found = self.caches.found(layer, *place)
                slot = Slot(layer.name, layer.group, *place)
                wrong.append(WrongSlot(part.request, slot, token, expected[n], found))
        self._note_reads(number, wrong)

    def text(self, request: str, tokens: int) -> str:
        """The first tokens of a request: its prompt, then sampled ones."""
        return self.owners.text(request, tokens)

    def _note_order(self) -> None:
        """Record the copies out of the caches. Where hits end inside a block, its bytes have
        several keys."""
        copies = self.clock.order.take()
        if copies.number:
            self.facts.append(copies._replace(parts=self.cfg.partial_block_hits))

    def note_writes(self) -> None:
        """Record the changes in the caches that no step computed."""
        if self.caches.is_changed():
            self.facts.extend(self.owners.written(self.caches, self.caches.changes()))
            self.caches.look()


def of_rank(vllm_config: Any, rank: int) -> Any:
    """The config of the worker of a rank, which has layers of its own."""
    own = copy.copy(vllm_config)
    own.parallel_config = copy.copy(vllm_config.parallel_config)
    own.parallel_config.rank = rank
    own.compilation_config = copy.copy(vllm_config.compilation_config)
    own.compilation_config.static_forward_context = {}
    return own


def end_forward(calls: Any, output: Any) -> Any:
    """End a forward pass (`ActiveKVConnector`). Releases before 0.32 wait for saves in
    `post_forward`, and older ones give it the whole output of the scheduler."""
    if hasattr(calls, "finish_forward"):
        calls.finish_forward()
    whole = may_take(calls.post_forward, "scheduler_output")
    return calls.post_forward(output if whole else output.finished_req_ids)


def model_layer(latent: bool = False) -> Any:
    """A layer of the model in vLLM's forward context."""
    import torch

    base = adapt.named("AttentionLayerBase")
    chosen = latent_backend if latent else backend
    own = {"get_attn_backend": staticmethod(chosen), "get_kv_cache_spec": None}
    layer = type("ModelLayer", (base,), own)()
    layer.kv_cache = torch.tensor([])  # until the caches are allocated, as in vLLM
    return layer


class Metadata:
    """The attention metadata of a layer: where each token of the step is written."""

    def __init__(self, mapping: list[int]) -> None:
        import torch

        self.slot_mapping = torch.tensor(mapping, dtype=torch.int64)
        self.num_actual_tokens = len(mapping)
