"""The result of `kvproof gate` for each reader: a terminal, CI systems, code scanning."""
