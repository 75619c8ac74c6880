"""Files that come from outside or go out: the only code that opens them."""
