"""`python -m kvproof` is the program `kvproof`."""

from kvproof.cli.start import main

if __name__ == "__main__":
    main()
