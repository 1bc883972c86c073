"""``python -m pocket_ingest_tests.torture --kills N``: kill at random, compare, print the figures.

Exit code 1 where anything differs from a clean run.
"""

import argparse
import json
import platform
import secrets
import sys
from typing import Any

from pocket_ingest_tests.torture.run import run_torture


def main() -> None:
    """Parse, torture, print."""
    parser = argparse.ArgumentParser(prog="python -m pocket_ingest_tests.torture")
    parser.add_argument("--kills", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--seed", type=int, default=None, help="of files, kinds and moments")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--keep", action="store_true", help="keep the folder where things differ")
    asked = parser.parse_args()
    seed = secrets.randbelow(2**32) if asked.seed is None else asked.seed
    figures = run_torture(kills=asked.kills, seed=seed, keep=asked.keep)
    if asked.json:
        print(json.dumps(figures, indent=2))
    else:
        _tell(figures)
    sys.exit(1 if figures["differences"] else 0)


def _tell(figures: dict[str, Any]) -> None:
    print(f"Torture with seed {figures['seed']}, Python {platform.python_version()}")
    for name, value in figures.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for part, count in value.items():
                print(f"  {count:>8}  {part}")
        elif isinstance(value, list):
            for sentence in value:
                print(f"DIFFERENCE: {sentence}")
        elif name != "seed":
            print(f"{name}: {value}")
    if figures["differences"]:
        print(
            f"Differences were found. Again: --kills {figures['killed']} --seed {figures['seed']}"
        )
    else:
        print("Nothing lost, nothing doubled, nothing stuck.")


if __name__ == "__main__":
    main()
