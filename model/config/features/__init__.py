"""The features that a cluster may have, and which of them go together.

`table` has one entry for each; a new feature is a new entry. `registry` refuses what does not go
together.
"""
