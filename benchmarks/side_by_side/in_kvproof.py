"""The model of kv_transfer.py in kvproof.

    python in_kvproof.py PROMPT CHUNK OUTPUT BLOCK_SIZE P_BLOCKS D_BLOCKS

Prints states and seconds as JSON.
"""

import json
import sys

from kv_transfer import KV_TRANSFER, Sizes

from kvproof.proofs.states import search
from kvproof.strategies.verdict import Verdict


def main() -> None:
    """Search, and print the result."""
    found = search(KV_TRANSFER, Sizes(*map(int, sys.argv[1:])))
    if found.verdict is not Verdict.EXHAUSTED:
        sys.exit(f"kvproof: {found}")
    print(json.dumps({"states": found.states, "seconds": found.seconds}))


if __name__ == "__main__":
    main()
