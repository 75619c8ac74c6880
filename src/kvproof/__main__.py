"""`python -m kvproof` is the program `kvproof`."""

import sys

from kvproof.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
