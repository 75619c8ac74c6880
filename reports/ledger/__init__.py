"""The block ledger shows a trace or records as one self-contained HTML page."""
