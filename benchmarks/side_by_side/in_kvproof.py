"""The model of kv_transfer.py in kvproof.

    python in_kvproof.py columns|symmetry|plain PROMPT CHUNK OUTPUT BLOCK_SIZE P_BLOCKS D_BLOCKS

Prints states and seconds as JSON.
"""

import json
import sys

from kv_transfer import KV_TRANSFER, Sizes

from kvproof.strategies.systems.columns import ColumnSearch
from kvproof.strategies.systems.plain import search
from kvproof.strategies.verdict import Verdict


def main() -> None:
    """Search, and print the result."""
    how, sizes = sys.argv[1], Sizes(*map(int, sys.argv[2:]))
    if how == "plain":
        found, _ = search(KV_TRANSFER, sizes)
    else:
        found = ColumnSearch(KV_TRANSFER, sizes, symmetric=how == "symmetry").run()
    if found.verdict is not Verdict.EXHAUSTED:
        sys.exit(f"kvproof: {found}")
    print(json.dumps({"states": found.states, "seconds": found.seconds}))


if __name__ == "__main__":
    main()
