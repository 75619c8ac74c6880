"""A program: it prints the names of a set in the order in which Python reads them."""

print(*{f"r{number}" for number in range(20)}, flush=True)
