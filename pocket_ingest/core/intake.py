"""The way in: an object that somebody sent becomes a pinned upload with a job, exactly once.

Here: which dataset and tenant an inbox path belongs to, recognition of content that was here
before, pinning, and the one transaction that writes upload, job and outbox row.
Not here: looking for objects (the sensors) and the store itself (adapters).
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pocket_ingest.core.dataset import Dataset, Fixed, FromColumn, FromPath, check_tenant
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.jobs import RETRYABLE, ImportJob
from pocket_ingest.core.ports import Ledger, NewUpload, Store, StoredObject

INBOX = "inbox/"
MAX_SLUG = 60
MAX_PATH = 2_000

# Names under which programs write a file before they give it its own.
UNFINISHED = (".part", ".partial", ".tmp", ".crdownload", ".filepart", ".swp", "~")


@dataclass(frozen=True, kw_only=True)
class Address:
    """What an inbox path says: the dataset and the tenant."""

    dataset: Dataset
    tenant: str


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What became of one object: its job, and whether the object brought anything new."""

    job: ImportJob
    is_new: bool


def is_unfinished(key: str) -> bool:
    """Whether a name says that the file is hidden or still being written."""
    name = key.rsplit("/", 1)[-1]
    return name.startswith((".", "~$")) or name.lower().endswith(UNFINISHED)


def find_address(path: str, datasets: Iterable[Dataset]) -> Address:
    """Which dataset's inbox pattern a path below ``inbox/`` fits.

    Raises:
        PermanentError: no_inbox_match where none or several fit.
    """
    if len(path.encode(errors="replace")) > MAX_PATH:
        # A B-tree's entry holds some 2,700 bytes, and the ledger looks objects up by their keys.
        raise PermanentError(
            Code.NO_INBOX_MATCH, f"The path is longer than {MAX_PATH} bytes. Give it a shorter one."
        )
    if not path.isprintable():
        # A name that is not UTF-8 comes with surrogates, which no database takes.
        raise PermanentError(
            Code.NO_INBOX_MATCH,
            f"The name {path!a} holds characters that cannot be shown or is not UTF-8. "
            "Rename the file.",
        )
    found = [
        Address(dataset=dataset, tenant=tenant)
        for dataset in datasets
        if (tenant := _tenant(path, dataset)) is not None
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise PermanentError(
            Code.NO_INBOX_MATCH,
            f"No dataset's inbox pattern fits {path!r}. Move the file to where a dataset looks "
            "for it; `pocket-ingest datasets` lists the patterns.",
        )
    names = " and ".join(address.dataset.name for address in found)
    raise PermanentError(
        Code.NO_INBOX_MATCH,
        f"The inbox patterns of {names} all fit {path!r}. Make one of them more exact.",
    )


def take_in(
    store: Store,
    ledger: Ledger,
    found: StoredObject,
    *,
    dataset: Dataset,
    tenant: str,
    file_name: str | None = None,
    idempotency_key: str | None = None,
) -> Intake:
    """Pin an object and register it; content that this source brought last time is recognised.

    Args:
        store: where the object is and will be pinned.
        ledger: the record of uploads.
        found: the object, as a listing showed it.
        dataset: the dataset it belongs to.
        tenant: who owns it.
        file_name: the name to show; default the last part of the key.
        idempotency_key: the sender's own, if it gave one.

    Raises:
        PermanentError: upload_changed or upload_missing if the object is no longer what was found,
            idempotency_conflict if the same idempotency key came with other content.
    """
    check_tenant(tenant)
    return _register(
        ledger,
        NewUpload(
            dataset=dataset.name,
            tenant=tenant,
            source_key=found.key,
            pinned=store.pin(found, under=_pinned_under(dataset, tenant)),
            file_name=file_name or found.key.rsplit("/", 1)[-1],
            idempotency_key=idempotency_key,
        ),
    )


def take_in_file(
    store: Store, ledger: Ledger, path: Path, *, dataset: Dataset, tenant: str
) -> Intake:
    """Pin and register a local file that somebody names.

    Raises:
        PermanentError: upload_changed or upload_missing.
    """
    check_tenant(tenant)
    if not path.name.isprintable():
        raise PermanentError(
            Code.UPLOAD_MISSING,
            f"The file name {path.name!a} holds characters that cannot be shown or is not UTF-8. "
            "Rename the file.",
        )
    return _register(
        ledger,
        NewUpload(
            dataset=dataset.name,
            tenant=tenant,
            source_key=f"local/{dataset.name}/{tenant}/{path.name}",
            pinned=store.take(path, under=_pinned_under(dataset, tenant)),
            file_name=path.name,
            idempotency_key=None,
        ),
    )


def _pinned_under(dataset: Dataset, tenant: str) -> str:
    return f"uploads/{dataset.name}/{slug(tenant)}"


def _register(ledger: Ledger, new: NewUpload) -> Intake:
    registered = ledger.register(new)
    job = registered.job
    if not registered.is_new and job.state in RETRYABLE:
        # Sending a failed file once more asks for another try; there is nothing new to pin.
        ledger.retry(job.id, actor="intake")
        job = ledger.job(job.id)
    return Intake(job=job, is_new=registered.is_new)


def choose_tenant(dataset: Dataset, given: str | None) -> str:
    """The tenant of a file that did not come through the inbox.

    A dataset whose rows name their tenants keeps its jobs under its own name.

    Raises:
        PermanentError: invalid_tenant if the dataset needs one and none was given, or the other
            way round.
    """
    own = _own_tenant(dataset)
    if own is None:
        if given is None:
            raise PermanentError(
                Code.INVALID_TENANT, f"Dataset {dataset.name!r} needs a tenant; name one."
            )
        return check_tenant(given)
    if given not in {None, own}:
        raise PermanentError(
            Code.INVALID_TENANT,
            f"Dataset {dataset.name!r} says itself who owns its rows; leave the tenant out.",
        )
    return own


def _own_tenant(dataset: Dataset) -> str | None:
    """The tenant of a dataset's jobs where the path has no say in it."""
    match dataset.tenant:
        case FromPath():
            return None
        case Fixed(tenant=tenant):
            return tenant
        case FromColumn():
            return dataset.name


def find_dataset(name: str, datasets: Mapping[str, Dataset]) -> Dataset:
    """Look a dataset up. Raises PermanentError(unknown_dataset)."""
    try:
        return datasets[name]
    except KeyError:
        known = ", ".join(sorted(datasets)) or "none"
        raise PermanentError(
            Code.UNKNOWN_DATASET, f"There is no dataset {name!r}. There are: {known}."
        ) from None


def slug(text: str, *, longest: int = MAX_SLUG) -> str:
    """A readable form of a name with ``[A-Za-z0-9._-]`` only.

    Dagster's backfills break on a comma in a partition key, and other characters have been trouble
    before; the real name stays in the ledger.
    """
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", ascii_text)
    # "..." is reserved by Dagster for ranges of partitions.
    plain = re.sub(r"\.{2,}", ".", plain).strip("-.")
    return plain[:longest].strip("-.") or "file"


def _tenant(path: str, dataset: Dataset) -> str | None:
    """The tenant if the path fits the dataset's pattern, else None."""
    pattern = "".join(
        {"{tenant}": r"(?P<tenant>[^/]+)", "**": r".*", "*": r"[^/]*"}.get(part, re.escape(part))
        for part in re.split(r"(\{tenant\}|\*\*|\*)", dataset.inbox_pattern)
    )
    match = re.fullmatch(pattern, path)
    if match is None:
        return None
    return _own_tenant(dataset) or match["tenant"]
