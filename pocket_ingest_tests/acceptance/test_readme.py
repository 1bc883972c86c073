"""The README's example, exactly as it stands there."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pocket_ingest_tests.acceptance.running_stack import clean_environment

pytestmark = [pytest.mark.slow]

README = Path(__file__).parents[2] / "README.md"
JUNE = """\
Invoice #,Supplier,Due,Amount,Note
AB-001,Ada's Bakery,06/30/2026,"1,234.50",first
AB-002,Brick & Sons,07/15/2026,0.05,
AB-3x,Nobody,07/15/2026,1,pattern
AB-004,Nobody,31/07/2026,1,date
"""


def example() -> str:
    text = README.read_text()
    block = text[text.index("<!-- example -->") : text.index("<!-- /example -->")]
    return block.partition("```python\n")[2].partition("```")[0]


def test_a_dataset_of_your_own_in_fewer_than_25_lines() -> None:
    code = example()
    assert len(code.splitlines()) < 25
    with tempfile.TemporaryDirectory(prefix="pocket-readme-") as temporary:
        folder = Path(temporary).resolve()
        folder.chmod(0o755)
        (folder / "my_datasets").mkdir()
        (folder / "my_datasets" / "invoices.py").write_text(code)
        (folder / "june.csv").write_text(JUNE)

        def pocket_ingest(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "pocket_ingest", *arguments],
                cwd=folder,
                env=clean_environment(POCKET_DATASETS="my_datasets"),
                capture_output=True,
                text=True,
                check=False,
                timeout=200,
            )

        run = ("run", "june.csv", "--dataset", "invoices", "--tenant", "acme", "--json")
        first = pocket_ingest(*run)
        assert first.returncode == 3, first.stderr  # loaded, but records were rejected
        job = json.loads(first.stdout)
        assert job["state"] == "succeeded"
        assert job["records_read"] == 4
        assert (job["outcomes"]["created"], job["outcomes"]["rejected"]) == (2, 2)
        codes = {
            (entry["field"], entry["code"])
            for entry in job["report"]["validated"]["rejects_by_field_and_code"]
        }
        assert codes == {("number", "pattern"), ("due_on", "invalid_date")}
        exported = Path(job["artifacts"]["export.csv"]).read_text()
        assert exported == (
            "_record,number,supplier,due_on,amount,note\n"
            "1,AB-001,Ada's Bakery,2026-06-30,1234.50,first\n"
            "2,AB-002,Brick & Sons,2026-07-15,0.05,\n"
        )
        again = json.loads(pocket_ingest(*run).stdout)
        assert again["id"] == job["id"]
        assert again["skipped"] == "finished as succeeded"
        listed = json.loads(pocket_ingest("status", "--json").stdout)
        assert [entry["id"] for entry in listed] == [job["id"]]
        unknown = pocket_ingest("run", "june.csv", "--dataset", "bills")
        assert unknown.returncode == 2
        assert "unknown_dataset" in unknown.stderr
