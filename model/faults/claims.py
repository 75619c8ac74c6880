"""Names of the claims about counts that a fault refutes: `system.claim`, as `kvproof prove` has
them. Some systems share their claims."""

TABLES = ("full", "window", "mamba", "state")
CACHING = ("full", "window", "mamba")
LISTS = ("transfer_of_full", "transfer_of_window")
TRANSFERS = (*LISTS, "transfer_of_mamba")


def claims(systems: str | tuple[str, ...], *names: str) -> frozenset[str]:
    """These claims of each of these systems."""
    each = (systems,) if isinstance(systems, str) else systems
    return frozenset(f"{system}.{name}" for system in each for name in names)
