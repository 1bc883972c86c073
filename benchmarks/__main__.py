"""``python -m benchmarks NAME [--records N] [--json]``; ``all`` runs each of them.

Here: arguments and the table for people, or one JSON object.
Not here: what is measured.
"""

import argparse
import json
from dataclasses import asdict

from benchmarks.comparisons import BENCHMARKS, USUAL_RECORDS
from benchmarks.measuring import Result


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--records", type=int, help="default 200,000, to read CSV 1,000,000")
    parser.add_argument("--repetitions", type=int, default=3, help="of each side (default 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    asked = parser.parse_args()
    names = list(BENCHMARKS) if asked.name == "all" else [asked.name]
    results = []
    for name in names:
        records = asked.records or USUAL_RECORDS.get(name, 200_000)
        results.append(BENCHMARKS[name](records, asked.repetitions))
        if not asked.json:
            _tell(results[-1])
    if asked.json:
        found = [asdict(result) for result in results]
        whole = {"name": "all", "benchmarks": found} if asked.name == "all" else found[0]
        print(json.dumps(whole, indent=2))


def _tell(result: Result) -> None:
    versions = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    sizes = ", ".join(f"{name} {size} MB" for name, size in result.sizes_mb.items())
    print(f"{result.name}: {result.rows['records']:,} records, {sizes},")
    print(f"median of {result.repetitions}, {result.cores} cores, {versions}")
    for title, unit, values in (
        ("ratio", "x", result.ratios),
        ("time", "s", result.seconds),
        ("peak memory", "MB", result.peak_mb),
    ):
        for name, value in values.items():
            print(f"  {title:<12} {name:<42} {value:>10.4g} {unit}")
    print()


if __name__ == "__main__":
    main()
