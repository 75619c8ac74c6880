"""A prefill engine P and a decode engine D of which both get a request at once, as the router of
vLLM's MooncakeConnector sends it: D waits for what P computes."""

from kvproof.connectors.engine import DrivenEngine
from kvproof.connectors.pair import OF_P, TO_DECODE, EnginePair
from kvproof.connectors.plan import SubmitRequest

FROM_PREFILL = {"do_remote_prefill": True, "do_remote_decode": False}
"""The `kv_transfer_params` that the router sends to D with a request."""


class PairAtOnce(EnginePair):
    """P and D, which get a request at the same time. If the client disconnects from D, the router
    does not abort the request on P."""

    def submit(self, name: str, arrives: SubmitRequest) -> None:
        """Submit a request to both engines."""
        self.arrived += 1
        both = {"transfer_id": name}
        self.prefill.submit(name + OF_P, arrives.to_prefill, {**TO_DECODE, **both})
        where = {
            "remote_engine_id": self.prefill.connector["engine_id"],
            "remote_bootstrap_addr": "http://localhost:1",
        }
        self.decode.submit(name, arrives, {**FROM_PREFILL, **both, **where})

    def _between(self) -> None:
        """Do nothing: P sends nothing to the router."""

    def abort(self, name: str) -> None:
        """Abort a request, as its client disconnects. If P's request is aborted, no load of D can
        succeed."""
        if name in self.prefill.running:
            self.loses()
        super().abort(name)

    def loses(self) -> None:
        """Let the network fail."""
        self._each(DrivenEngine.loses)
