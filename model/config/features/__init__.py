"""The table of features, one file for each. A file says the name of the feature, when a cluster
uses it, what it cannot be combined with and why, and how a random cluster sets it.

The refusals, README's table and the random clusters are all made from it (see `registry`).
"""
