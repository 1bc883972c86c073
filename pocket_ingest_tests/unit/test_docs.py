"""The documentation says what the code does: generated parts are fresh, nothing is left out."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from pocket_ingest.core.errors import CATALOGUE, Code
from pocket_ingest.settings import Settings

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", PROJECT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_code_is_explained() -> None:
    assert set(CATALOGUE) == set(Code)
    for entry in CATALOGUE.values():
        assert entry.meaning.endswith(".")
        assert entry.remedy.endswith(".")


def test_the_page_of_error_codes_is_fresh(generate: ModuleType) -> None:
    assert generate.ERROR_CODES.read_text() == generate.error_codes()


def test_the_readme_is_fresh(generate: ModuleType) -> None:
    text = generate.README.read_text()
    assert generate.readme(text) == text


def test_every_setting_is_in_the_readme_and_nothing_else_is() -> None:
    text = (PROJECT / "README.md").read_text()
    table = text[text.index("<!-- settings -->") : text.index("<!-- /settings -->")]
    named = set(re.findall(r"^\| `(POCKET_\w+)`", table, flags=re.MULTILINE))
    assert named == {f"POCKET_{name.upper()}" for name in Settings.model_fields}
    for field in Settings.model_fields.values():
        assert field.description, "every setting has a sentence"


def test_links_of_the_readme_lead_somewhere() -> None:
    text = (PROJECT / "README.md").read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (PROJECT / target).exists(), target


def test_workspace_and_dg_name_the_same_location() -> None:
    workspace = (PROJECT / "workspace.yaml").read_text()
    pyproject = (PROJECT / "pyproject.toml").read_text()
    location = re.search(r"location_name: (\S+)", workspace)
    module = re.search(r"module_name: (\S+)", workspace)
    assert location is not None
    assert module is not None
    assert f'code_location_name = "{location[1]}"' in pyproject
    assert f'root_module = "{module[1].removesuffix(".definitions")}"' in pyproject
