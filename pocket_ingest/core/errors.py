"""The one exception tree and the catalogue of stable codes.

Here: what can be wrong with a file, a record or the system, in words for the person who reads it.
Not here: how a trigger reacts (Dagster, the CLI and others map the three kinds once, at their
edge), nor the errors of one library, which adapters translate into these.

A message names file, record, line and field. It never holds a cell's value, a token or a URL.
"""

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a code condemns: one record, a whole file, or nothing in the file at all."""

    RECORD = "record"
    FILE = "file"
    SYSTEM = "system"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A code's entry in the catalogue, written for the person who can do something about it."""

    scope: Scope
    meaning: str
    remedy: str


class Code(StrEnum):
    """Every stable error code. A code is never renamed or given another meaning."""

    # a record that cannot be read
    FIELD_COUNT = "field_count"
    TEXT_AFTER_QUOTE = "text_after_quote"
    UNTERMINATED_QUOTE = "unterminated_quote"
    NUL_BYTE = "nul_byte"
    INVALID_ENCODING = "invalid_encoding"
    RECORD_TOO_LONG = "record_too_long"
    # a field that the contract refuses
    REQUIRED = "required"
    INVALID_INTEGER = "invalid_integer"
    INVALID_DECIMAL = "invalid_decimal"
    INVALID_NUMBER = "invalid_number"
    INVALID_DATE = "invalid_date"
    INVALID_TIMESTAMP = "invalid_timestamp"
    INVALID_BOOLEAN = "invalid_boolean"
    PATTERN = "pattern"
    NOT_ALLOWED = "not_allowed"
    OUT_OF_RANGE = "out_of_range"
    TEXT_LENGTH = "text_length"
    CHECK_FAILED = "check_failed"
    DUPLICATE_KEY = "duplicate_key"
    # a file that cannot be taken
    EMPTY_FILE = "empty_file"
    UNSUPPORTED_TYPE = "unsupported_type"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    DUPLICATE_HEADER = "duplicate_header"
    MISSING_COLUMN = "missing_column"
    HEADER_UNREADABLE = "header_unreadable"
    TOO_MANY_COLUMNS = "too_many_columns"
    TOO_MANY_REJECTS = "too_many_rejects"
    UPLOAD_CHANGED = "upload_changed"
    UPLOAD_MISSING = "upload_missing"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    # the system
    UNKNOWN_DATASET = "unknown_dataset"
    INVALID_CONTRACT = "invalid_contract"
    INVALID_SETTING = "invalid_setting"
    INVALID_TENANT = "invalid_tenant"
    UNKNOWN_JOB = "unknown_job"
    NO_INBOX_MATCH = "no_inbox_match"
    TABLE_DIFFERS = "table_differs"
    DATABASE_UNAVAILABLE = "database_unavailable"
    DATABASE_REFUSED = "database_refused"
    STORE_UNAVAILABLE = "store_unavailable"
    LEASE_LOST = "lease_lost"
    WORKER_LOST = "worker_lost"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class IngestError(Exception):
    """Base of everything that this project raises on purpose.

    Attributes:
        code: the stable code, a member of ``Code``.
        detail: one sentence for the reader: what is wrong, where, what to do. No cell values.
    """

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail

    def __reduce__(self) -> tuple[type["IngestError"], tuple[Code, str]]:
        """Keep code and detail when an error crosses a process border."""
        return type(self), (self.code, self.detail)


class PermanentError(IngestError):
    """The same input will fail again: never retried."""


class TransientError(IngestError):
    """The network, a lock, a restart: worth another try, with backoff."""


class Cancelled(IngestError):  # noqa: N818 - a person's decision, not a fault
    """A person cancelled the job; what was committed stays."""

    def __init__(self, code: Code = Code.CANCELLED, detail: str = "The job was cancelled.") -> None:
        super().__init__(code, detail)
