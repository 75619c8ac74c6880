"""This module collects all proof obligations: each function of these modules that is declared with
`@obligation`."""

from kvproof.proofs import align_split, caching, regions, transfer, trimming, windows
from kvproof.proofs.obligation import Obligation

OBLIGATIONS: dict[str, Obligation] = {
    each.id: each
    for module in (transfer, caching, trimming, align_split, windows, regions)
    for each in vars(module).values()
    if isinstance(each, Obligation)
}
"""The obligations by id, in the order in which they are declared."""
