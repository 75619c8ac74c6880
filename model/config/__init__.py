"""A cluster: its engines, their pools and cache groups, and its jobs.

The defaults are small. Each class checks its own numbers. The table in `features` says which
features do not combine and which are not modelled; each new engine and cluster is checked against
it.
"""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.engine import EngineConfig
from kvproof.model.config.features.registry import refuse
from kvproof.model.config.group import Group
from kvproof.model.config.job import DRAFT, REVERSE, Job

__all__ = ["DRAFT", "REVERSE", "Cluster", "EngineConfig", "Group", "Job"]

EngineConfig.checks = (refuse,)
Cluster.checks = (refuse,)
