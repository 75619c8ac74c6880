"""Where traces had history among what is observed: the pointers of today for those of then."""

import re

MOVED = (
    (re.compile(r"(/engines/[^/]+)/(served|mirror)"), r"\1/ghost/\2"),
    (re.compile(r"(/engines/[^/]+)/requests/([^/]+)/shared"), r"\1/ghost/shared/\2"),
)


def upgrade(pointer: str) -> str:
    """The pointer of a trace, old or new, as states have it now."""
    for was, now in MOVED:
        if was.fullmatch(pointer):
            return was.sub(now, pointer)
    return pointer
