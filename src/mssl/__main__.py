"""``python -m mssl`` is the command line."""

from mssl.cli import main

if __name__ == "__main__":
    main()
