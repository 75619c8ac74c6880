"""`python -m kvproof` is the program `kvproof`."""

import sys

from kvproof.cli.main import main

sys.exit(main())
