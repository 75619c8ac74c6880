"""Numbers with their nouns and verbs."""


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: "1 defect", "3 defects"."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def was(number: int) -> str:
    """The verb of so many, in the past."""
    return "was" if number == 1 else "were"


def are(number: int) -> str:
    """The verb of so many."""
    return "is" if number == 1 else "are"
