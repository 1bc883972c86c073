"""Workbooks made by hand, where no library writes them or none would write such a thing.

XLSB as MS-XLSB 2.1 says: records of a kind, a size and a body; XLSX and ODS as their XML.
"""

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence

RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
ODS_NAMES = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)
MANIFEST = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"

Shared = tuple[int]
"""The number of a shared text, as a cell of XLSB."""


def _archive(members: Mapping[str, bytes | str]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def _relations(target: str) -> str:
    return (
        f'<Relationships xmlns="{RELATIONSHIPS}"><Relationship Id="rId1" Type="{OFFICE}/worksheet" '
        f'Target="worksheets/{target}"/></Relationships>'
    )


def xlsx(rows: str, *, shared: Sequence[str] = ()) -> bytes:
    """A workbook of one sheet, by the XML of its rows."""
    texts = "".join(f"<si><t>{text}</t></si>" for text in shared)
    return _archive(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": f'<Relationships xmlns="{RELATIONSHIPS}"><Relationship Id="rId1" '
            f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets><sheet '
            'name="Data" sheetId="1" r:id="rId1"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": _relations("sheet1.xml"),
            "xl/sharedStrings.xml": f'<sst xmlns="{MAIN}">{texts}</sst>',
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{rows}'
            "</sheetData></worksheet>",
        }
    )


def ods(rows: str) -> bytes:
    """A document of one table, by the XML of its rows."""
    return _archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "content.xml": f'<?xml version="1.0"?><office:document-content {ODS_NAMES}>'
            f'<office:body><office:spreadsheet><table:table table:name="Data">{rows}'
            "</table:table></office:spreadsheet></office:body></office:document-content>",
            "META-INF/manifest.xml": f'<manifest:manifest xmlns:manifest="{MANIFEST}"/>',
        }
    )


def xlsb(
    rows: Mapping[int, Mapping[int, str | float | Shared]], *, shared: Sequence[str] = ()
) -> bytes:
    """A workbook of one sheet, by the cells of its rows, both counted from 0."""
    sheet = _record(129) + _record(148, struct.pack("<IIII", 0, 9, 0, 9)) + _record(145)
    for row, cells in rows.items():
        sheet += _record(0, struct.pack("<IIHHBI", row, 0, 300, 0, 0, 0))
        for column, value in cells.items():
            place = struct.pack("<II", column, 0)
            if isinstance(value, str):
                sheet += _record(6, place + _wide(value))
            elif isinstance(value, tuple):
                sheet += _record(7, place + struct.pack("<I", *value))
            else:
                sheet += _record(5, place + struct.pack("<d", value))
    sheet += _record(146) + _record(130)
    told = struct.pack("<II", 0, 1) + _wide("rId1") + _wide("Data")
    book = _record(131) + _record(143) + _record(156, told) + _record(144) + _record(132)
    texts = b"".join(_record(19, b"\0" + _wide(text)) for text in shared)
    counts = struct.pack("<II", len(shared), len(shared))
    return _archive(
        {
            "[Content_Types].xml": "<Types/>",
            "xl/workbook.bin": book,
            "xl/_rels/workbook.bin.rels": _relations("sheet1.bin"),
            "xl/sharedStrings.bin": _record(159, counts) + texts + _record(160),
            "xl/worksheets/sheet1.bin": sheet,
        }
    )


def _record(kind: int, body: bytes = b"") -> bytes:
    told = bytes([kind]) if kind < 128 else bytes([kind & 0x7F | 0x80, kind >> 7])
    rest = len(body)
    while rest > 127:
        told, rest = told + bytes([rest & 0x7F | 0x80]), rest >> 7
    return told + bytes([rest]) + body


def _wide(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")
