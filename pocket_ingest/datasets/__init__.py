"""The datasets: those that ship with the package, and how a team's own are found.

Here: one small file per shipped dataset, and the search (discovery.py).
Not here: what a declaration means (core/dataset.py, core/contract.py). This module imports no
dataset, so that importing it does not import Pandera.
"""

from pocket_ingest.datasets.discovery import find_datasets

__all__ = ["find_datasets"]
