"""A trace as one self-contained HTML page: the block ledger."""
