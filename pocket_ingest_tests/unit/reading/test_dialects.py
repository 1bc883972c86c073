"""The dialect of a text is told from its records."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocket_ingest.core.file_format import FileFormat
from pocket_ingest.core.reading.dialects import (
    Dialect,
    cut_rows,
    escape_is_used,
    score_dialects,
)

ROWS = [
    ["id", "name", "city", "amount", "on"],
    ["1", "Müller, Anna", "Köln", "1.234,56", "2024-01-31"],
    ["2", "O'Brien; Pat", "Cork", "-7,00", "2024-02-01"],
    ["3", 'the "Old" Mill', "Bath | Avon", "12,50", "2024-02-29"],
    ["4", "two\nlines", "", "0,99", "2024-03-01"],
    ["5", "plain", "Ulm", "3,00", "2024-03-02"],
]


def written(rows, delimiter=",", quote='"', end="\n", quoting=csv.QUOTE_MINIMAL, escape=None):
    """The rows as a writer of the dialect writes them.

    Until Python 3.13 the csv module quotes only those line ends that occur in its own terminator,
    and it knows delimiters of one character.
    """
    target = io.StringIO()
    writer = csv.writer(
        target,
        delimiter=delimiter if len(delimiter) == 1 else "\x1c",
        quotechar=quote,
        lineterminator="\r\n",
        quoting=quoting,
        doublequote=escape is None,
        escapechar=escape,
    )
    writer.writerows(rows)
    return target.getvalue().replace("\r\n", end).replace("\x1c", delimiter)


def best(text: str, **declared) -> Dialect:
    return score_dialects(text, FileFormat(**declared))[0].dialect


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "^", "~", "\x1f"])
def test_delimiters_of_one_character(delimiter, quoting, end):
    text = written(ROWS, delimiter, quoting=quoting, end=end)
    found = best(text)
    assert (found.delimiter, found.quote, found.escape) == (delimiter, '"', "")
    assert [row.cells for row in cut_rows(text, found)] == ROWS


@pytest.mark.parametrize("delimiter", ["||", "::", "|~|", ", ", ";;"])
def test_delimiters_of_several_characters(delimiter):
    text = written(ROWS, delimiter, quoting=csv.QUOTE_ALL)
    found = best(text)
    assert found.delimiter == delimiter
    assert [row.cells for row in cut_rows(text, found)] == ROWS


def test_single_quotes():
    text = written(ROWS, ",", quote="'", quoting=csv.QUOTE_ALL)
    found = best(text)
    assert (found.delimiter, found.quote) == (",", "'")
    assert [row.cells for row in cut_rows(text, found)] == ROWS


def test_apostrophes_are_no_quotes():
    text = "id,name\n1,'tis\n2,O'Brien\n3,the boys'\n4,rock 'n' roll\n"
    assert best(text).quote == '"'


def test_backslash_escapes():
    text = written(ROWS, ",", quoting=csv.QUOTE_ALL, escape="\\")
    found = best(text)
    assert (found.delimiter, found.quote, found.escape) == (",", '"', "\\")
    assert [row.cells for row in cut_rows(text, found)] == ROWS


def test_a_backslash_at_the_end_of_a_path_is_no_escape():
    text = 'id,path\n1,"C:\\dir\\"\n2,"D:\\"\n3,"E:\\a"\n' * 5
    assert best(text).escape == ""
    assert escape_is_used(text, Dialect()) is False


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("Codice;Programma;Note\n1;a, b;x, y, z\n2;c, d, e;q\n", ";"),
        ("id;amount\n1;-236,48\n2;1488,69\n3;-1.000\n", ";"),
        ("time,value\n10:20:00,1\n10:20:01,2\n10:20:02,3\n", ","),
        ("when,what\n2024-01-01 10:00,a b c\n2024-01-02 11:00,d e f\n", ","),
        ("name\turl\nx\thttp://a.b/c?d=1;e=2\ny\thttp://a.b/c?d=1;e=3\n", "\t"),
        ("a b c\n1 2 3\n4 5 6\n", " "),
    ],
)
def test_what_cells_hold_does_not_mislead(text, delimiter):
    assert best(text).delimiter == delimiter


def test_what_is_declared_is_not_doubted():
    text = "a;b\n1;2\n"
    assert best(text, delimiter=",", quote="'", escape="^") == Dialect(
        delimiter=",", quote="'", escape="^"
    )


def test_a_stray_quote_costs_its_own_row_of_a_sample():
    rows = cut_rows('a,b\n1,"x\n2,y\n3,z\n' + "4,w\n" * 100, Dialect())
    assert rows[1].broken
    assert rows[1].cells == ["1", '"x']
    assert len(rows) == 104


@settings(max_examples=50)
@given(
    st.lists(
        st.lists(st.text(st.sampled_from("ab1 ,;\"'\n"), max_size=6), min_size=3, max_size=3),
        max_size=8,
    ),
    st.sampled_from([",", ";", "\t"]),
)
def test_a_sample_is_cut_as_the_csv_module_reads_it(rows, delimiter):
    text = written(rows, delimiter)
    assert [row.cells for row in cut_rows(text, Dialect(delimiter=delimiter))] == rows
