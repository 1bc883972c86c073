"""pocket_ingest: every uploaded file is a partition, every record has an outcome.

What a dataset's declaration needs is here: ``from pocket_ingest import Column, Dataset``.
"""

from pocket_ingest.core.dataset import (
    Column,
    Dataset,
    Duplicates,
    Existing,
    Fixed,
    FromColumn,
    FromPath,
)
from pocket_ingest.core.file_format import FileFormat

__all__ = [
    "Column",
    "Dataset",
    "Duplicates",
    "Existing",
    "FileFormat",
    "Fixed",
    "FromColumn",
    "FromPath",
]
