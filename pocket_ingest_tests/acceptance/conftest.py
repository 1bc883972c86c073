"""Fixtures of the acceptance tests."""

from collections.abc import Iterator

import pytest

from pocket_ingest_tests.acceptance.running_stack import RunningStack, running_stack


@pytest.fixture(scope="module")
def stack() -> Iterator[RunningStack]:
    """One stack for a module's tests, which run in their order."""
    with running_stack() as started:
        yield started
