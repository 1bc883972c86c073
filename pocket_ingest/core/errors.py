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
    NOTICE = "notice"
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
    FIELD_TOO_LONG = "field_too_long"
    ERROR_CELL = "error_cell"
    INVALID_JSON = "invalid_json"
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
    AMBIGUOUS_DIALECT = "ambiguous_dialect"
    AMBIGUOUS_ENCODING = "ambiguous_encoding"
    AMBIGUOUS_SHEET = "ambiguous_sheet"
    MISSING_SHEET = "missing_sheet"
    SPREADSHEET_UNREADABLE = "spreadsheet_unreadable"
    SPREADSHEET_TOO_LARGE = "spreadsheet_too_large"
    JSON_UNREADABLE = "json_unreadable"
    PARQUET_UNREADABLE = "parquet_unreadable"
    ARCHIVE_TOO_LARGE = "archive_too_large"
    ARCHIVE_MEMBERS = "archive_members"
    ARCHIVE_DAMAGED = "archive_damaged"
    UNSAFE_ARCHIVE_PATH = "unsafe_archive_path"
    NESTED_ARCHIVE = "nested_archive"
    TOO_MANY_COLUMNS = "too_many_columns"
    TOO_MANY_REJECTS = "too_many_rejects"
    UPLOAD_CHANGED = "upload_changed"
    UPLOAD_MISSING = "upload_missing"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    # what a person should know of a file that is read all the same
    WRONG_EXTENSION = "wrong_extension"
    ASSUMED_ENCODING = "assumed_encoding"
    MOJIBAKE = "mojibake"
    MIXED_LINE_ENDS = "mixed_line_ends"
    LINES_OUTSIDE = "lines_outside"
    MADE_UP_HEADER = "made_up_header"
    OTHER_SHEETS = "other_sheets"
    # the system
    UNKNOWN_DATASET = "unknown_dataset"
    INVALID_CONTRACT = "invalid_contract"
    INVALID_SETTING = "invalid_setting"
    INVALID_TENANT = "invalid_tenant"
    UNKNOWN_JOB = "unknown_job"
    NO_INBOX_MATCH = "no_inbox_match"
    CONTRACT_CHANGED = "contract_changed"
    TABLE_DIFFERS = "table_differs"
    DATABASE_UNAVAILABLE = "database_unavailable"
    DATABASE_REFUSED = "database_refused"
    STORE_UNAVAILABLE = "store_unavailable"
    TENANT_BUSY = "tenant_busy"
    LEASE_LOST = "lease_lost"
    WORKER_LOST = "worker_lost"
    CANCELLED = "cancelled"
    ALREADY_RUNNING = "already_running"
    INTERNAL = "internal"


def _record(meaning: str, remedy: str) -> Explanation:
    return Explanation(scope=Scope.RECORD, meaning=meaning, remedy=remedy)


def _file(meaning: str, remedy: str) -> Explanation:
    return Explanation(scope=Scope.FILE, meaning=meaning, remedy=remedy)


def _notice(meaning: str, remedy: str) -> Explanation:
    return Explanation(scope=Scope.NOTICE, meaning=meaning, remedy=remedy)


def _system(meaning: str, remedy: str) -> Explanation:
    return Explanation(scope=Scope.SYSTEM, meaning=meaning, remedy=remedy)


CATALOGUE: dict[Code, Explanation] = {
    Code.FIELD_COUNT: _record(
        "The record has more or fewer fields than the header.",
        "Add the missing fields, or quote a field that holds the delimiter.",
    ),
    Code.TEXT_AFTER_QUOTE: _record(
        "A quoted field goes on behind its closing quote.",
        "Write a quote inside a quoted field twice.",
    ),
    Code.UNTERMINATED_QUOTE: _record(
        "A quote opens a field and is not closed where the field should end.",
        "Close the quote, or remove it. The lines after it were read on their own.",
    ),
    Code.NUL_BYTE: _record(
        "The record holds a NUL byte, which no text in Postgres can hold.",
        "Remove the byte; often the file was cut off or written as UTF-16.",
    ),
    Code.INVALID_ENCODING: _record(
        "The record holds bytes that are not text in the file's encoding.",
        "Save the file as UTF-8.",
    ),
    Code.RECORD_TOO_LONG: _record(
        "The record is longer than `POCKET_MAX_RECORD_BYTES`.",
        "Look for a quote that is never closed; else raise the limit.",
    ),
    Code.FIELD_TOO_LONG: _record(
        "A field of the record is longer than `POCKET_MAX_FIELD_BYTES`.",
        "Look for a quote that is never closed; else raise the limit.",
    ),
    Code.ERROR_CELL: _record(
        "A cell of the spreadsheet holds an error, like #REF! or #N/A.",
        "Mend the formula, or put a value in its place.",
    ),
    Code.INVALID_JSON: _record(
        "The record is not a JSON object, or names a key twice.",
        "Mend it; each record is one object.",
    ),
    Code.REQUIRED: _record("A field that needs a value has none.", "Fill it in."),
    Code.INVALID_INTEGER: _record(
        "The text is no whole number, or one that the column cannot hold.",
        "Write digits only; the contract says whether groups of three may be marked.",
    ),
    Code.INVALID_DECIMAL: _record(
        "The text is no decimal number, or has more digits than the column.",
        "Write it with the decimal mark and the grouping that the contract declares.",
    ),
    Code.INVALID_NUMBER: _record("The text is no number.", "Write a number."),
    Code.INVALID_DATE: _record(
        "The text is no date in the declared form, or no day of the calendar.",
        "Write the date in the form that the hint names.",
    ),
    Code.INVALID_TIMESTAMP: _record(
        "The text is no point in time in the declared form, or an hour that a clock change skipped "
        "or repeated.",
        "Write it in the form that the hint names, with an offset where it asks for one.",
    ),
    Code.INVALID_BOOLEAN: _record(
        "The text is none of the declared words for true and false.", "Use one of them."
    ),
    Code.PATTERN: _record(
        "The text does not have the form that the contract asks for.", "See the hint for the form."
    ),
    Code.NOT_ALLOWED: _record(
        "The value is not among those that the contract allows.", "Use one that the hint lists."
    ),
    Code.OUT_OF_RANGE: _record(
        "The value is outside the range that the contract allows.", "See the hint for the range."
    ),
    Code.TEXT_LENGTH: _record("The text is too short or too long.", "See the hint for the length."),
    Code.CHECK_FAILED: _record(
        "The record does not pass a check that the dataset's team wrote.",
        "The hint says which one.",
    ),
    Code.DUPLICATE_KEY: _record(
        "The business key stands in the file more than once, and the contract takes none of them.",
        "Keep the record that is right.",
    ),
    Code.EMPTY_FILE: _file("The file has no header and no record.", "Send it again."),
    Code.UNSUPPORTED_TYPE: _file("The file is not a CSV file.", "Export it as CSV."),
    Code.UNSUPPORTED_ENCODING: _file("The file is not UTF-8.", "Save it as UTF-8."),
    Code.DUPLICATE_HEADER: _file(
        "Two columns of the header are the same.", "Rename or remove one of them."
    ),
    Code.MISSING_COLUMN: _file(
        "A column that the contract requires is not in the header.",
        "Add it; if it only has a new name, the team adds an alias and runs the file again.",
    ),
    Code.HEADER_UNREADABLE: _file(
        "The first line cannot be read as a header.", "Put the column names into the first line."
    ),
    Code.AMBIGUOUS_DIALECT: _file(
        "The file can be read in two ways that differ, and neither explains it better.",
        "The team declares what the message names in the dataset's `FileFormat`.",
    ),
    Code.AMBIGUOUS_ENCODING: _file(
        "The bytes of the file are text in more than one encoding.",
        "Save the file as UTF-8, or the team declares `encoding` in the dataset's `FileFormat`.",
    ),
    Code.AMBIGUOUS_SHEET: _file(
        "More than one sheet of the workbook has the contract's columns.",
        "Remove the others, or the team declares `sheet` in the dataset's `FileFormat`.",
    ),
    Code.MISSING_SHEET: _file(
        "The workbook has no sheet of the declared name.", "Give the sheet that name."
    ),
    Code.SPREADSHEET_UNREADABLE: _file(
        "The workbook is damaged or protected by a password.",
        "Open it, save it again without a password, and send it.",
    ),
    Code.SPREADSHEET_TOO_LARGE: _file(
        "The sheet takes more memory than `POCKET_MAX_SHEET_BYTES`.",
        "Save it as CSV, which has no such limit.",
    ),
    Code.JSON_UNREADABLE: _file(
        "The file is neither JSON objects, one a line, nor an array of them.",
        "Send one object a line.",
    ),
    Code.PARQUET_UNREADABLE: _file(
        "The Parquet file is damaged, or a row group of it is too large.", "Write it again."
    ),
    Code.ARCHIVE_TOO_LARGE: _file(
        "Unpacked, the file passes `POCKET_MAX_UNPACKED_BYTES` or `POCKET_MAX_UNPACK_RATIO`.",
        "Send it in parts, or unpacked; else raise the limit.",
    ),
    Code.ARCHIVE_MEMBERS: _file(
        "The archive holds no file with data, more than one, or not the declared one.",
        "Pack one file, or the team declares `member` in the dataset's `FileFormat`.",
    ),
    Code.ARCHIVE_DAMAGED: _file(
        "The archive cannot be unpacked: cut off, damaged or protected by a password.",
        "Pack it again and send it.",
    ),
    Code.UNSAFE_ARCHIVE_PATH: _file(
        "A member of the archive has a path that leads out of it.", "Pack it again."
    ),
    Code.NESTED_ARCHIVE: _file("The archive holds another archive.", "Pack the file itself."),
    Code.WRONG_EXTENSION: _notice(
        "The file is of another type than its name says; it was read by its content.",
        "Nothing; the name misleads people only.",
    ),
    Code.ASSUMED_ENCODING: _notice(
        "The file is not UTF-8 and does not say what it is; an encoding was assumed.",
        "Check names with accents; save as UTF-8, or the team declares `encoding`.",
    ),
    Code.MOJIBAKE: _notice(
        "Text in the file was garbled before it was sent: UTF-8 read as another encoding.",
        "Mend it where the file is made; it was read as it is.",
    ),
    Code.MIXED_LINE_ENDS: _notice(
        "Lines end in different ways.", "Nothing; each is read as a line end."
    ),
    Code.LINES_OUTSIDE: _notice(
        "Lines before the header or after the last record were taken for no records.",
        "Check them; the team can declare `skip_lines` and `footer_lines`.",
    ),
    Code.MADE_UP_HEADER: _notice(
        "The file has no header, or one with fewer names than columns.",
        "The team declares `header_rows=0`, or the sender adds the names.",
    ),
    Code.OTHER_SHEETS: _notice(
        "The workbook has other sheets, which were not read.",
        "Nothing, if the right one was; else the team declares `sheet`.",
    ),
    Code.TOO_MANY_COLUMNS: _file(
        "The header has more columns than `POCKET_MAX_COLUMNS`.",
        "Check the delimiter; else raise the limit.",
    ),
    Code.TOO_MANY_REJECTS: _file(
        "More records were rejected than the contract allows; nothing was loaded.",
        "See the rejects; often one column changed its form.",
    ),
    Code.UPLOAD_CHANGED: _file(
        "The bytes are not the ones that were taken in.", "Send the file again."
    ),
    Code.UPLOAD_MISSING: _file(
        "The file is not there, or may not be read.", "Send it again; check its permissions."
    ),
    Code.IDEMPOTENCY_CONFLICT: _file(
        "An idempotency key came again with other content.", "Send it under a new key."
    ),
    Code.UNKNOWN_DATASET: _system(
        "No dataset has this name.", "`pocket-ingest datasets` lists them."
    ),
    Code.INVALID_CONTRACT: _system(
        "A dataset's declaration contradicts itself or cannot be imported.",
        "The message names the file, the column and what to mend.",
    ),
    Code.INVALID_SETTING: _system("A setting cannot be used.", "The message names it."),
    Code.INVALID_TENANT: _system(
        "The tenant is missing, superfluous or not a name.", "The message says which."
    ),
    Code.UNKNOWN_JOB: _system("The ledger has no such job.", "`pocket-ingest status` lists them."),
    Code.NO_INBOX_MATCH: _system(
        "A file in the inbox fits no dataset's pattern, or several.",
        "Move it to where a dataset looks for it.",
    ),
    Code.CONTRACT_CHANGED: _system(
        "The contract changed when a part of the file was in the table already.",
        "Restore the contract for this file, or send the file under another name.",
    ),
    Code.TABLE_DIFFERS: _system(
        "The dataset's table is not what its contract says.",
        "Change the table to fit, or rename the dataset.",
    ),
    Code.DATABASE_UNAVAILABLE: _system(
        "Postgres cannot be reached, or broke off.",
        "It is tried again; check `DATABASE_URL` and the server.",
    ),
    Code.DATABASE_REFUSED: _system(
        "Postgres refused a statement.", "The message has its error code; check rights and table."
    ),
    Code.STORE_UNAVAILABLE: _system(
        "The store of files failed.", "It is tried again; check disk and mount."
    ),
    Code.TENANT_BUSY: _system(
        "Another transaction on the same dataset and tenant did not end in time.",
        "It is tried again; look for a worker that hangs.",
    ),
    Code.LEASE_LOST: _system(
        "Another worker took the job over.", "Nothing; the other one finishes it."
    ),
    Code.WORKER_LOST: _system(
        "Workers died several times with this file in hand.",
        "See their logs (memory is a usual cause), then retry it.",
    ),
    Code.CANCELLED: _system(
        "A person cancelled the job; what was committed stays.", "Send the file again if need be."
    ),
    Code.ALREADY_RUNNING: _system(
        "A stack runs in this POCKET_HOME already.", "Use it, stop it, or set another home."
    ),
    Code.INTERNAL: _system(
        "An error that nobody foresaw.", "The worker's log has the traceback; please report it."
    ),
}


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
