"""What a prefill engine offers to a decode engine."""

from collections.abc import Iterator

from kvproof.model.phases import Phase
from kvproof.model.state import Transfer
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views


class Offers(Part):
    """The transfer parameters of a request that ends."""

    view = Views.OFFERS.value

    def questions(self) -> Iterator[Question]:
        """One offer after the other."""
        for name, computed, params in self.seen.event.offers:
            if params.get("do_remote_prefill") or params.get("do_remote_decode"):
                tokens = params.get("remote_num_tokens", computed)
                groups = params.get("remote_block_ids") or ()
                lists = tuple(tuple(map(int, group)) for group in groups)
                yield self.question(transfers=(Transfer(name, Phase.OFFERED, tokens, lists),))
