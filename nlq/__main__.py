"""`python -m nlq`."""

from nlq.cli import main

main()
