"""The environment: what may happen to an engine that it does not choose. It asks observed state
only, and it is the same for every machine.

Requests arrive, sessions continue, users abort, outputs come late, drafts are accepted, loads and
transfers succeed or fail, leases end, blocks are evicted, the cache is reset, a store keeps and
forgets.
"""
