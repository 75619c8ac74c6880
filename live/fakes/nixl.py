"""A fake NIXL agent, which copies memory of this process at the moment that the kit chooses.

The calls are those of `nixl_agent`. A copy goes between addresses that vLLM's worker has registered
and prepared itself. A message to the other side follows the copy, as NIXL promises.

The backend `OBJ` has an object store in memory on its other side, which keeps an object under its
key. vLLM uses it in `vllm/v1/kv_offload/tiering/obj`. A copy that fails ends with the state `ERR`,
or the call that asks for its state raises.
"""

import ctypes
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kvproof.live.fake import Fake
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.store_client import StoreClient
from kvproof.model.plans.connector import Call

Piece = tuple[int, int, int]
"""An address, a number of bytes, a device."""


@dataclass
class PostedTransfer:
    """A copy that was posted: pairs of target and source, and the agent that then gets a message.
    `local_ids` and `remote_ids` are the numbers of the pieces on both sides. It has `failed` if a
    source does not exist any more."""

    moves: list[tuple[Any, Any]]
    agent: str
    message: bytes
    local_ids: Sequence[int] = ()
    remote_ids: Sequence[int] = ()
    due: int = 0
    done: bool = False
    failed: bool = False


def _pieces(at: int, size: int, device: int, distance: int = 0, count: int = 1) -> list[Piece]:
    return [(at + i * distance, size, device) for i in range(count)]


class CopyingAgent:
    """A fake NIXL agent. `agents` has all agents of the episode by name. vLLM would take an
    exception for a failure of the network, so a call that this agent lacks is AdapterDrift, and its
    calls take further arguments."""

    def __init__(self, clock: Clock, name: str) -> None:
        self.clock, self.name = clock, name
        self.agents: dict[str, CopyingAgent] = clock.shared.setdefault("agents", {})
        self.agents[name] = self
        self.known: list[tuple[int, int]] = []
        self.lists: dict[int, tuple[str, list[Any]]] = {}
        self.transfers: dict[int, PostedTransfer] = {}
        self.messages: defaultdict[str, list[bytes]] = defaultdict(list)
        self.numbers = 0

    __getattr__ = Fake.__getattr__

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def get_reg_descs(self, pieces: Any, *_: object) -> Any:
        """Make descriptors of memory to register."""
        return pieces

    def register_memory(self, pieces: Any, kind: str = "DRAM", **_: object) -> Any:  # noqa: ARG002
        """Register memory with the network card."""
        self.known += [(int(piece[0]), int(piece[1])) for piece in pieces]

    def create_backend(self, *_: object, **__: object) -> None:
        """Connect to a backend; this has no effect."""

    def deregister_memory(self, _pieces: Any) -> None:
        """Undo `register_memory`; this has no effect."""

    def get_agent_metadata(self) -> bytes:
        """The metadata by which another agent finds this one: its name."""
        return self.name.encode()

    def add_remote_agent(self, metadata: bytes) -> str:
        """Add another agent by its metadata. Returns its name."""
        return metadata.decode()

    def remove_remote_agent(self, _name: str) -> None:
        """Forget another agent."""

    def check_remote_metadata(self, name: str) -> bool:
        """Whether the other agent is known."""
        return name in self.agents

    def get_xfer_descs(self, pieces: Any, *_: object, **__: object) -> list[Piece]:
        """Make descriptors of memory to transfer, piece by piece. A row of five numbers stands for
        `count` pieces at equal distances (vLLM 0.33)."""
        return [piece for row in pieces for piece in _pieces(*map(int, row))]

    def prep_xfer_dlist(self, agent: str, pieces: Any, **_: object) -> int:
        """Prepare memory of an agent for copies. Raises RuntimeError where it is not registered."""
        owner, listed = self.agents.get(agent, self), self.get_xfer_descs(pieces)
        for at, size, _device in listed:
            if not any(begin <= at and at + size <= begin + room for begin, room in owner.known):
                raise RuntimeError(f"{size} bytes at {at} are not registered")
        self.lists[number := self._number()] = agent, listed
        return number

    def release_dlist_handle(self, number: int) -> None:
        """Undo `prep_xfer_dlist`."""
        del self.lists[number]

    def make_prepped_xfer(
        self,
        operation: str,
        local: int,
        local_ids: Sequence[int],
        remote: int,
        remote_ids: Sequence[int],
        notif_msg: bytes = b"",
        **_: object,
    ) -> int:
        """Prepare a copy of pieces. Raises RuntimeError where the pieces of both sides differ in
        number or size."""
        agent, theirs = self.lists[remote]
        ours = self.lists[local][1]
        if len(local_ids) != len(remote_ids):
            raise RuntimeError(f"{len(local_ids)} pieces here, {len(remote_ids)} there")
        pairs = [(ours[i], theirs[j]) for i, j in zip(local_ids, remote_ids, strict=True)]
        if any(one[1] != other[1] for one, other in pairs):
            raise RuntimeError("two pieces are not of one size")
        moves = pairs if operation == "READ" else [(other, one) for one, other in pairs]
        self.transfers[number := self._number()] = PostedTransfer(
            moves, agent, bytes(notif_msg), local_ids, remote_ids
        )
        return number

    def transfer(self, number: int, *_: object, **__: object) -> str:
        """Start a copy."""
        begun = self.transfers[number]
        begun.due = self.clock.now + self.clock.window
        if not self.clock.late:
            self._carry_out(begun)
        return "PROC"

    def _carry_out(self, begun: PostedTransfer) -> None:
        if not begun.done:
            for target, source in begun.moves:
                ctypes.memmove(target[0], source[0], source[1])
            begun.done = True
            if begun.message:
                self.send_notif(begun.agent, begun.message)

    def end(self, number: int, well: bool) -> None:
        """End a copy now, before the end of its window: it is made, or it fails."""
        ends = self.transfers[number]
        ends.due, ends.done, ends.failed = self.clock.now, not well, not well
        self._carry_out(ends)

    def check_xfer_state(self, number: int, **_: object) -> str:
        """The state of a copy: it is done at the end of its window."""
        begun = self.transfers[number]
        if self.clock.now < begun.due:
            return "PROC"
        self._carry_out(begun)
        return "ERR" if begun.failed else "DONE"

    def get_xfer_telemetry(self, number: int, **_: object) -> Any:
        """The telemetry of a copy; its numbers mean nothing here."""
        moves = self.transfers[number].moves
        moved = sum(source[1] for _, source in moves)
        return SimpleNamespace(
            xferDuration=1, postDuration=1, totalBytes=moved, descCount=len(moves)
        )

    def release_xfer_handle(self, number: int, **_: object) -> None:
        """Release the handle of a copy. A copy that was not made yet is cancelled."""
        self.transfers.pop(number, None)

    def send_notif(self, agent: str, notif_msg: bytes, *_: object, **__: object) -> None:
        """Send a message to another agent."""
        self.agents[agent].messages[self.name].append(bytes(notif_msg))

    holds: Callable[[bytes], bool] = staticmethod(lambda _message: False)
    """Whether a message to this agent has not arrived yet."""

    def inbox(self, kind: Callable[[bytes], bool]) -> dict[str, list[bytes]]:
        """The messages of a kind to this agent that it has not taken, by sender."""
        chosen = ((name, list(filter(kind, sent))) for name, sent in self.messages.items())
        return {name: sent for name, sent in chosen if sent}

    def get_new_notifs(self, **_: object) -> dict[str, list[bytes]]:
        """The messages that have arrived since the last call."""
        taken = self.inbox(lambda message: not self.holds(message))
        self.messages = defaultdict(list, self.inbox(self.holds))
        return taken


def agents(kind: Callable[[Clock, str], Any]) -> Callable[[Clock], Any]:
    """Make the fakes of NIXL's class of agents: each makes agents of this kind."""
    return lambda clock: lambda name, *_, **__: kind(clock, name)


Object = tuple[str, int, int]
"""A key, a number of bytes, a device: in place of an address of memory."""


class Registered(list[Any]):
    """The result of `register_memory`."""

    def trim(self) -> "Registered":
        """The same object, as the source or target of a copy."""
        return self


class ObjectAgent(CopyingAgent):
    """A fake NIXL agent whose other side is an object store."""

    def __init__(self, clock: Clock, name: str) -> None:
        super().__init__(clock, name)
        self.store = StoreClient()

    def query_memory(self, pieces: Sequence[Any], *_: object) -> list[dict[str, str] | None]:
        """An answer for each object that the store has, None for any other. A look-up of which the
        store knows nothing has None."""
        failed = self.store.failing("look-up", len(pieces)) if self.store.call else ()
        return [
            {} if piece[3] in self.store.kept and n not in failed else None
            for n, piece in enumerate(pieces)
        ]

    def register_memory(self, pieces: Any, kind: str = "DRAM", **_: object) -> Registered:
        """Register memory or objects that will be copied."""
        if kind == "DRAM":
            super().register_memory(pieces)
            return Registered(pieces)
        return Registered((key, size, device) for _, size, device, key in pieces)

    def prep_xfer_dlist(self, agent: str, pieces: Any, *_: object, **__: object) -> int:
        """Prepare memory or objects for copies."""
        if not isinstance(pieces, Registered):
            return super().prep_xfer_dlist(agent, pieces)
        self.lists[number := self._number()] = agent, list(pieces)
        return number

    def _carry_out(self, begun: PostedTransfer) -> None:
        if begun.done or self.clock.over:
            return
        begun.done = True
        for target, source in begun.moves:
            if isinstance(target[0], str):
                self.store.note(target[0])
                self.store.kept[target[0]] = ctypes.string_at(source[0], source[1])
            elif (found := self.store.kept.get(source[0])) is None:
                begun.failed = True
            else:
                ctypes.memmove(target[0], found, target[1])

    def transfer(self, number: int, *_: object, **__: object) -> str:
        """Start a copy."""
        if not self.store.raises and self.store.fails(self._call(number)):
            return "ERR"
        return super().transfer(number)

    def _call(self, number: int) -> Call:
        """The kind of a copy: a put, if it goes to an object."""
        moves = self.transfers[number].moves
        return "put" if moves and isinstance(moves[0][0][0], str) else "get"

    def check_xfer_state(self, number: int, **_: object) -> str:
        """The state of a copy: in progress, done or failed."""
        if self.clock.now < self.clock.goes_on:
            return "PROC"
        if self.store.fails(self._call(number)):
            return "ERR"
        return super().check_xfer_state(number)

    def release_xfer_handle(self, number: int, **_: object) -> None:
        """Release the handle of a copy."""
        self._may_raise()
        super().release_xfer_handle(number)

    def release_dlist_handle(self, number: int) -> None:
        """Undo `prep_xfer_dlist`."""
        self._may_raise()
        super().release_dlist_handle(number)

    def deregister_memory(self, _pieces: Any) -> None:
        """Undo `register_memory`."""
        self._may_raise()

    def _may_raise(self) -> None:
        if self.store.raises:
            self.store.fails(self.store.call)
