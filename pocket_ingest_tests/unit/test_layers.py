"""Which part of the package may import which: a rule as data, held over the source of every module.

The rule covers each import statement, wherever it stands: in a function, or for type checkers only.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = "pocket_ingest"

# Layer to the layers that it may import besides itself. The package's own name stands for its
# `__init__`, which holds what a declaration of a dataset needs.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    layer: frozenset(allowed.split())
    for layer, allowed in {
        "pocket_ingest": "core",
        "core": "",
        "settings": "",
        "datasets": "core pocket_ingest",
        "adapters": "core",
        "wiring": "core adapters datasets settings",
        "stack": "core adapters datasets settings wiring",
        "orchestration": "core settings wiring",
        "cli": "core adapters settings wiring stack",
        "definitions": "orchestration",
        "__main__": "cli",
    }.items()
}

# Library to the layers that may import it; others may be imported everywhere.
LIBRARIES: Mapping[str, frozenset[str]] = {
    library: frozenset(layers.split())
    for library, layers in {
        "dagster": "orchestration definitions",
        "psycopg": "adapters stack",
        "psycopg_pool": "adapters",
        "sqlalchemy": "adapters",
        "alembic": "adapters",
        "boto3": "adapters",
        "botocore": "adapters",
        "celery": "",
        "fastapi": "",
        "pydantic_settings": "settings",
        "typer": "cli",
        "rich": "cli stack",
    }.items()
}


def imports_of(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """The dotted names that a module's source imports, relative ones made absolute."""
    home = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = home[: len(home) - node.level + 1] if node.level else []
            origin = ".".join([*base, *filter(None, [node.module])])
            # `from package import name` imports the module of that name, if there is one.
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def layer_of(name: str) -> str | None:
    """The layer of a module of the package, or of a name in one; None for one without a layer."""
    parts = name.split(".")
    if len(parts) > 1 and parts[1] in MAY_IMPORT:
        return parts[1]
    return PACKAGE if len(parts) == 1 or parts[1][:1].isupper() else None


def violations(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """What is against the rule, as sentences.

    Args:
        imports: module to the dotted names that it imports.
    """
    found = []
    for module, names in sorted(imports.items()):
        layer = layer_of(module)
        if layer is None:
            found.append(f"{module} is in no layer")
            continue
        for name in sorted(set(names)):
            library = name.partition(".")[0]
            if library == PACKAGE:
                target = layer_of(name)
                if target != layer and target not in MAY_IMPORT[layer]:
                    found.append(f"{module} imports {name}")
            else:
                # dagster_postgres and the like go with dagster.
                rule = "dagster" if library.startswith("dagster") else library
                if rule in LIBRARIES and layer not in LIBRARIES[rule]:
                    found.append(f"{module} imports {name}")
    return found


def all_imports() -> dict[str, list[str]]:
    """Every module of the package with its imports."""
    found = {}
    for path in (PROJECT / PACKAGE).rglob("*.py"):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        source = path.read_text(encoding="utf-8")
        found[module] = list(imports_of(source, module, is_package=is_package))
    return found


def test_every_module_keeps_to_its_layer() -> None:
    imports = all_imports()
    assert len(imports) > 30
    assert {layer_of(module) for module in imports} == set(MAY_IMPORT)
    assert violations(imports) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pocket_ingest.core.jobs", "import dagster"),
        ("pocket_ingest.core.jobs", "def f():\n    from psycopg.rows import dict_row"),
        ("pocket_ingest.core.jobs", "if TYPE_CHECKING:\n    import boto3.session as s"),
        ("pocket_ingest.core.jobs", "import celery, json"),
        ("pocket_ingest.core.jobs", "from fastapi import FastAPI"),
        ("pocket_ingest.core.jobs", "from sqlalchemy import text"),
        ("pocket_ingest.core.jobs", "from pocket_ingest.adapters.local_store import LocalStore"),
        ("pocket_ingest.core.jobs", "from ..adapters import local_store"),
        ("pocket_ingest.core.jobs", "from .. import settings"),
        ("pocket_ingest.core.jobs", "from pocket_ingest import wiring"),
        ("pocket_ingest.core.jobs", "from pocket_ingest import Dataset"),
        ("pocket_ingest.core.jobs", "import pocket_ingest.datasets"),
        ("pocket_ingest.core.jobs", "import pocket_ingest.cli as c"),
        ("pocket_ingest.core.reading.window", "from ...stack import dev"),
        ("pocket_ingest.adapters.s3", "from pocket_ingest.settings import Settings"),
        ("pocket_ingest.adapters.s3", "from pocket_ingest.datasets import find_datasets"),
        ("pocket_ingest.adapters.s3", "from pocket_ingest.orchestration.build import build_defs"),
        ("pocket_ingest.adapters.s3", "import dagster_aws.s3"),
        ("pocket_ingest.datasets.mine", "from pocket_ingest.adapters import local_store"),
        ("pocket_ingest.datasets.mine", "from pocket_ingest.settings import Settings"),
        ("pocket_ingest.stack.dev", "import dagster"),
        ("pocket_ingest.stack.dev", "from pocket_ingest.orchestration import build"),
        ("pocket_ingest.cli", "from dagster import DagsterInstance"),
        ("pocket_ingest.wiring", "from dagster_postgres import PostgresRunStorage"),
        ("pocket_ingest.settings", "from pocket_ingest.core.errors import Code"),
        ("pocket_ingest.utils", "import json"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str) -> None:
    assert violations({module: imports_of(source, module)}) != []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pocket_ingest.core.jobs", "import json, pyarrow.parquet\nfrom . import ports"),
        ("pocket_ingest.datasets.mine", "from pocket_ingest import Column, Dataset"),
        ("pocket_ingest.adapters.s3", "import boto3\nfrom ..core.errors import Code"),
        ("pocket_ingest.orchestration.jobs", "import dagster\nfrom dagster_aws import s3"),
    ],
)
def test_a_right_import_is_let_through(module: str, source: str) -> None:
    assert violations({module: imports_of(source, module)}) == []


HEAVY = ("dagster", "psycopg", "sqlalchemy", "boto3", "celery", "fastapi", "pandas", "pandera")


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("pocket_ingest", HEAVY),
        ("pocket_ingest.core", HEAVY),
        ("pocket_ingest.core.process", HEAVY),
        ("pocket_ingest.core.inbox", HEAVY),
        ("pocket_ingest.core.dispatch", HEAVY),
        ("pocket_ingest.datasets", HEAVY),
        ("pocket_ingest.settings", HEAVY),
        ("pocket_ingest.cli", ("dagster", "pandas", "pandera")),
    ],
)
def test_importing_a_module_does_not_import_what_it_must_not_need(
    module: str, unwanted: tuple[str, ...]
) -> None:
    """In a fresh process, what comes with the imports of imports counts too."""
    program = f"import {module}, sys; print(sorted(set({unwanted!r}) & set(sys.modules)))"
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"
