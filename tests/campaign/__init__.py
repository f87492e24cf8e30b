"""Random problems, damaged files and kills, for minutes or for hours: ``python -m tests.campaign --help``."""
