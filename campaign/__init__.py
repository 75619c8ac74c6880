"""Campaigns: searches in work units, on many processes or machines, that learn from what they saw.

A unit is data, and what it gives depends on nothing else. Results are merged in the order of their
units. So the same campaign gives the same result with any number of workers.
"""
