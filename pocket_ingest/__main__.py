"""``python -m pocket_ingest`` is the command line."""

from pocket_ingest.cli import main

main()
