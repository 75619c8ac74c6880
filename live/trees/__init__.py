"""Trees of vLLM: any place that has the package `vllm`. Nothing here imports vLLM.

Each tree gets a *mirror* in the cache folder: a folder of links to the files of the package, with
compiled parts beside them where the tree has none. A process that drives the tree has the mirror
first on its path. So nothing is ever copied or written into the tree.
"""

from kvproof.live.trees.commits import commit
from kvproof.live.trees.naming import named
from kvproof.live.trees.tree import Tree, environment, fingerprint, lend

__all__ = ["Tree", "commit", "environment", "fingerprint", "lend", "named"]
