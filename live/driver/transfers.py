"""What both ways of a live KV transfer share: NIXL's own workers of P and D, on the fakes of the
device.

They register KV caches of zeros, shake hands, and copy when the environment says so. What a copy
brings is copied in symbolic memory too, between the blocks for which the worker has computed
descriptors. A scheduler's messages reach its worker after each event; vLLM would send them with its
next step.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import lcm
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput

from kvproof.live import adapt, build
from kvproof.live.connectors.caches import allocated, layout
from kvproof.live.connectors.worker import model_layer
from kvproof.live.driver.nixl import Pairs, as_lists
from kvproof.live.driver.node import Node
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.nixl import PostedTransfer
from kvproof.live.fakes.replaced import OF_NIXL, Fakes, require
from kvproof.model import memory
from kvproof.model.config import Cluster
from kvproof.model.plans.connector import Copies
from kvproof.model.state import Lists, State

LAYERS = 2
"""The number of layers of each of several groups: with more than one layer, all groups have pages
of one size."""

FOR_EVER = 10**9
"""The window of a copy, which ends only when the environment says so."""

OVER = 0.0
"""The time of a lease that has ended."""

DESCRIPTORS = "_compute_desc_ids", "_get_block_descs_ids"
"""The worker's function that computes descriptors of blocks, newest name first."""


class Transfers:
    """The transfers between P and D: the effect of each event on them. The key of a transfer is the
    name of its request, or the name of its reverse transfer from D to P (see `follow_up_turns`).
    A cluster of one engine has none."""

    def __init__(self, cluster: Cluster, nodes: Mapping[str, Node]) -> None:
        self.cluster, self.nodes = cluster, nodes
        self.prefill, self.decode = nodes[cluster.prefill.name], nodes[cluster.decode.name]
        self.clock = Clock(Copies(late=True, steps=FOR_EVER))
        self.described: dict[int, tuple[Any, Lists]] = {}
        self.fakes: AbstractContextManager[None] = nullcontext()
        if not cluster.disaggregated:
            return
        require(OF_NIXL)
        self.fakes = Fakes(OF_NIXL, self.clock)
        with self.device():
            for port, node in enumerate((self.decode, self.prefill), 1):
                node.connector.connector_scheduler.side_channel_port = port
                node.nixl = self._started(node)

    @contextmanager
    def device(self) -> Iterator[None]:
        """Put the fakes of the device in place, until the block ends. Outside it, the threads of
        the connectors stand."""
        self.clock.goes_on = self.clock.now
        try:
            with self.fakes:
                yield
        finally:
            self.clock.goes_on = FOR_EVER

    def _started(self, node: Node) -> Any:
        """NIXL's worker of an engine, with KV caches; other workers can find it."""
        from vllm.config import set_current_vllm_config
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        cfg, vllm_config = node.cfg, node.connector.connector_scheduler.vllm_config
        ratio = cfg.physical_per_logical
        block = lcm(*(group.block_size for group in cfg.groups if group.attention))
        self.clock.kernel_tokens = block // ratio if ratio > 1 else 0
        layers = LAYERS if len(cfg.groups) > 1 else 1
        caches = build.with_tensors(vllm_config, build.kv_cache_config(cfg, build.Shape(layers)))
        names = [name for group in caches.kv_cache_groups for name in group.layer_names]
        context = vllm_config.compilation_config.static_forward_context
        context |= {name: model_layer() for name in names}
        with set_current_vllm_config(vllm_config):
            made = type(node.connector)(vllm_config, KVConnectorRole.WORKER, caches)
            made.register_kv_caches(allocated(caches, layout(vllm_config), ratio))
        adapt.introduce([made], node.connector)
        self._note_blocks(made.connector_worker)
        return made.connector_worker

    def _note_blocks(self, worker: Any) -> None:
        """Note of which blocks a worker computes descriptors."""
        name = next(each for each in DESCRIPTORS if hasattr(worker, each))
        compute = getattr(worker, name)
        form = inspect.signature(compute)

        def descriptors(*given: Any, **named: Any) -> Any:
            computed = compute(*given, **named)
            blocks = form.bind(*given, **named).arguments["block_ids"]
            self.described[id(computed)] = computed, as_lists(blocks)
            return computed

        setattr(worker, name, descriptors)

    def aborted(self, state: State, node: Node) -> State:
        """Let the worker of the engine know of an abort."""
        return self._idle(state, node) if node.nixl is not None else state

    def seen(self, state: State) -> State:
        """The state with the transfers as they are now, where events do not say it."""
        return state

    def _idle(self, state: State, node: Node) -> State:
        """Run a step that computes nothing and sends the connector metadata to the worker."""
        empty = SchedulerOutput.make_empty()
        return self.stepped(state, node, node.connector.build_connector_meta(empty))

    def stepped(self, state: State, node: Node, meta: Any) -> State:
        """Send the connector metadata of a step to an engine's worker."""
        raise NotImplementedError

    def _end(self, node: Node, copies: Iterable[int], well: bool) -> None:
        """End copies of a worker: they are made, or they fail."""
        for number in copies:
            node.nixl.nixl_wrapper.end(number, well)

    def _end_lease(self, node: Node, name: str) -> None:
        """Let the lease of a request end next in an engine's worker."""
        leases = node.nixl._reqs_to_send
        if name in leases:
            # Some releases look at the first lease only.
            others = {each: due for each, due in leases.items() if each != name}
            leases.clear()
            leases.update({name: OVER, **others})

    def _copied(self, source: Node, sink: Node, pairs: Pairs) -> None:
        """Copy blocks in symbolic memory."""
        filled = memory.copy(source.cfg, sink.cfg, source.engine, sink.engine, pairs)
        sink.worker.memory = filled.memory
        sink.engine = sink.engine._replace(memory=filled.memory)

    def _lists(self, copy: PostedTransfer) -> tuple[Lists, Lists]:
        """The kernel blocks of a copy by group: those of the worker that posted it, and those of
        the other one."""
        (_, ours), (_, theirs) = (
            self.described[id(ids)] for ids in (copy.local_ids, copy.remote_ids)
        )
        return ours, theirs
