"""The table of features: one file for each, which says how it is called, when a cluster uses it,
what it does not go with and why, and how a random cluster comes to use it.

The refusals, README's table and the random clusters are all made from it (see `registry`).
"""
