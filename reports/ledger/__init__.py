"""The block ledger shows a trace as one self-contained HTML page."""
