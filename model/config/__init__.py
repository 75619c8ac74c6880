"""A cluster: its engines, their pools and cache groups, and the traffic it is to carry.

Small by default. Each value checks its own numbers. What does not combine, or is not modelled, is
told by the table in `features`, which each new engine and cluster is asked: one file a feature.
"""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.engine import Engine
from kvproof.model.config.features.registry import refuse
from kvproof.model.config.group import Group
from kvproof.model.config.job import REVERSE, Job

__all__ = ["REVERSE", "Cluster", "Engine", "Group", "Job"]

Engine.checks = (refuse,)
Cluster.checks = (refuse,)
