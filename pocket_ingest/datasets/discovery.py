"""Where datasets come from: the package itself, a team's folders, a team's modules.

Here: importing the files and collecting the `Dataset` instances that they define.
Not here: whether a declaration makes sense; `Dataset.contract` says so when it is first needed.
"""

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.errors import Code, PermanentError

SHIPPED = ("pocket_ingest.datasets.permits", "pocket_ingest.datasets.transactions")


def find_datasets(places: Sequence[str], *, shipped: bool) -> dict[str, Dataset]:
    """Import every place and collect its datasets.

    A place is a folder or, where there is no such folder, an importable module. Of a folder, each
    ``*.py`` counts whose name does not begin with ``_``; of a package, it and its modules, one
    level deep, by the same rule. A file runs once in a process, like any module, and may import
    its neighbours (those with ``_`` too) as ``from ._neighbour import ...``.

    Args:
        places: folders and module names, searched in this order.
        shipped: whether the package's own datasets are found too.

    Returns:
        The module-level datasets by name, in the order of their names.

    Raises:
        PermanentError: invalid_setting if a place does not exist; invalid_contract if a file fails
            to import or two datasets have one name.
    """
    found: dict[str, Dataset] = {}
    homes: dict[str, str] = {}
    for place in (*(SHIPPED if shipped else ()), *places):
        for module in _modules(place):
            for dataset in vars(module).values():
                if not isinstance(dataset, Dataset):
                    continue
                home = module.__file__ or module.__name__
                earlier = homes.setdefault(dataset.name, home)
                if found.setdefault(dataset.name, dataset) is not dataset:
                    raise PermanentError(
                        Code.INVALID_CONTRACT,
                        f"Two datasets are called {dataset.name!r}, one in {earlier} and one in "
                        f"{home}. Rename one; POCKET_SHIPPED_DATASETS=false leaves out those that "
                        "ship with the package.",
                    )
    return dict(sorted(found.items()))


def _modules(place: str) -> Iterator[ModuleType]:
    try:
        folder = Path(place).expanduser().resolve()
        files = sorted(folder.iterdir()) if folder.is_dir() else None
    except (OSError, RuntimeError) as error:
        raise _no_place(place, f"cannot be read ({type(error).__name__})") from error
    if files is None:
        yield from _named_modules(place)
        return
    package = _package_of(folder)
    for file in files:
        # The dot keeps out the `._permits.py` that macOS leaves beside files on foreign disks.
        if file.suffix == ".py" and not file.name.startswith(("_", ".")) and file.is_file():
            yield _load_file(file, package)


def _package_of(folder: Path) -> str:
    """A package of a unique name for the folder, so that equal stems in two folders never meet."""
    name = f"_pocket_datasets_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return name


def _load_file(file: Path, package: str) -> ModuleType:
    name = f"{package}.{file.stem.replace('.', '%2E')}"  # a dot would name a module inside another
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # noqa: S101 - the suffix is .py
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: the contract's version and Pandera look up the source by it.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _failed(file, error) from error
    return module


def _named_modules(place: str) -> Iterator[ModuleType]:
    module = None
    parts = place.split(".")
    for count in range(1, len(parts) + 1):
        module = _import_module(".".join(parts[:count]), place)
    assert module is not None  # noqa: S101 - a place has at least one part
    yield module
    for _, name, _ in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if not name.startswith("_"):
            yield _import_module(f"{place}.{name}", place)


def _import_module(name: str, place: str) -> ModuleType:
    """Import a module whose parents are imported already."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise _no_place(place, "is neither a folder nor an importable module")
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise _failed(Path(spec.origin or name), error) from error


def _no_place(place: str, problem: str) -> PermanentError:
    return PermanentError(
        Code.INVALID_SETTING,
        f"The place {place!r} where datasets are looked for {problem}. Correct POCKET_DATASETS: "
        "it names folders with Python files, or modules, separated by commas.",
    )


def _failed(file: Path, error: BaseException) -> PermanentError:
    """The error's place nearest to its cause, in the file or in a neighbour that it imports."""
    line: int | None = None
    message = f"{type(error).__name__}: {error}"
    for frame, number in traceback.walk_tb(error.__traceback__):
        code_file = Path(frame.f_code.co_filename)
        if code_file.parent == file.parent:
            file, line = code_file, number
    if isinstance(error, SyntaxError) and Path(error.filename or "").parent == file.parent:
        file, line = Path(error.filename or ""), error.lineno
        message = f"{type(error).__name__}: {error.msg}"
    at = f"{file}, line {line}" if line else str(file)
    return PermanentError(Code.INVALID_CONTRACT, f"{at}: {message}. Nothing was loaded from it.")
