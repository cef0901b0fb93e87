"""`python -m ticklake` is the command `ticklake`."""

from __future__ import annotations

from ticklake.cli import main

if __name__ == "__main__":
    main()
