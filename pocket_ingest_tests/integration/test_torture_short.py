"""A short torture: every kind of kill once, and nothing is lost, doubled or stuck afterwards.

The long one is ``make torture N=1000``; docs/reliability.md has its figures.
"""

import pytest

from pocket_ingest_tests.torture.run import run_torture
from pocket_ingest_tests.torture.supervision import KINDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_each_kind_of_kill_changes_nothing_in_the_end() -> None:
    figures = run_torture(kills=len(KINDS), seed=1)
    assert figures["differences"] == []
    assert figures["killed"] == sum(figures["kills"].values()) == len(KINDS)
    assert figures["jobs"] > 0
    assert (figures["lost"], figures["doubled"], figures["stuck"]) == (0, 0, 0)
