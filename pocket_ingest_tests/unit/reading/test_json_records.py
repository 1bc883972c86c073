"""JSON Lines and arrays of objects: text as it is written, lines that add up."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.expectation import CellForm, Expectation, ExpectedColumn
from pocket_ingest.core.reading.json_records import recognise_json
from pocket_ingest_tests.unit.reading.formats import read_whole

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
TABLES = st.lists(
    st.fixed_dictionaries({"id": TEXT, "é n": st.one_of(st.none(), TEXT)}), min_size=1, max_size=12
)


def count_lines(data: bytes) -> int:
    data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b'{"a": 1}\n{"a": 2}\n', "jsonl"),
        (b' \n{"a": 1}', "jsonl"),
        (b'[{"a": 1}]', "json"),
        (b'[\n  {\n    "a": 1\n', "json"),
        (b"[]", "json"),
        (b'{\n  "a": 1\n}', "json"),
        (b"{}\n", "jsonl"),
        (b"[Year,Make]\n1,2\n", ""),
        (b"{x},b\n1,2\n", ""),
        (b"[1,2]\n", ""),
        (b"a,b\n", ""),
    ],
)
def test_json_is_recognised_by_its_content(head, kind):
    assert recognise_json(head) == kind


@given(TABLES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_of_json_are_read_as_they_are(table, end, ended):
    lines = [json.dumps(row, ensure_ascii=False) for row in table]
    data = end.join(lines).encode() + end.encode() * ended
    whole = read_whole(data, chunk_records=5)
    assert whole.found.format == "jsonl"
    assert whole.rows == [tuple(row[name] for name in whole.names) for row in table]
    assert whole.lines == list(range(1, len(table) + 1))
    assert whole.account.record_lines == whole.account.total == len(table)


@given(TABLES, st.sampled_from([None, 2]), st.booleans())
def test_an_array_of_objects_is_read_as_it_is(table, indent, ended):
    data = json.dumps(table, indent=indent, ensure_ascii=False).encode() + b"\n" * ended
    whole = read_whole(data, chunk_records=5)
    assert whole.found.format == "json"
    assert whole.rows == [tuple(row[name] for name in whole.names) for row in table]
    assert whole.faults == []
    assert whole.account.total == count_lines(data)


def test_numbers_are_text_as_they_are_written():
    data = b'{"a": 1.0, "b": 12345678901234567890, "c": 1e3, "d": -0.10}\n'
    assert read_whole(data).rows == [("1.0", "12345678901234567890", "1e3", "-0.10")]


def test_the_column_decides_how_values_are_spelled():
    form = CellForm(decimal_mark=",", true="ja", false="nein")
    columns = (ExpectedColumn(name="a", headers=frozenset({"a"}), form=form),)
    data = b'{"a": 1.5}\n{"a": true}\n{"a": false}\n{"a": "1.5"}\n{"a": null}\n'
    whole = read_whole(data, expectation=Expectation(columns=columns))
    assert whole.rows == [("1,5",), ("ja",), ("nein",), ("1.5",), (None,)]


def test_what_is_nested_is_json_text():
    data = '{"a": {"b": [1.0, "é", null, true], "c": {}}}\n'.encode()
    assert read_whole(data).rows == [('{"b":[1.0,"é",null,true],"c":{}}',)]


def test_keys_that_come_late_are_columns_too():
    whole = read_whole(b'{"a": 1}\n{"b": 2, "a": 3}\n{"c": 4}\n')
    assert whole.names == ("a", "b", "c")
    assert whole.rows == [("1", None, None), ("3", "2", None), (None, None, "4")]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b'{"a": 1', "invalid_json"),
        (b'{"a": 1, "a": 2}', "invalid_json"),
        (b'{"a": NaN}', "invalid_json"),
        (b"[1]", "invalid_json"),
        (b"7", "invalid_json"),
        (b'{"a": "\xff"}', "invalid_encoding"),
        (b'{"a": "\\ud800"}', "invalid_encoding"),
        (b'{"a": "\\u0000"}', "nul_byte"),
        (b'{"a": "' + b"x" * 3_000 + b'"}', "record_too_long"),
    ],
)
@pytest.mark.parametrize("before", [1, 40])
def test_a_bad_line_costs_one_record(bad, code, before):
    good = [b'{"a": "%d"}' % n for n in range(before + 5)]
    data = b"\n".join([*good[:before], bad, *good[before:]])
    whole = read_whole(data, max_record_bytes=2_000)
    assert whole.faults == [(before + 1, before + 1, code)]
    assert whole.rows == [(str(n),) for n in range(before + 5)]
    assert whole.account.total == count_lines(data)


@pytest.mark.parametrize(
    "bad",
    [
        b'{"a": 1 2}',
        b'{"a": }',
        b"7",
        b'{"a": "open}',
        b'{"a": 1',
        b'{"a": [1}',
        b'{"a": 1 2, "b": [{}, {}]}',
        b'{"a": ' + b"[" * 100_000,
    ],
    ids=str,
)
@pytest.mark.parametrize("before", [1, 30])
def test_an_array_goes_on_after_a_bad_element(bad, before):
    good = [b'{"a": "%d"}' % n for n in range(before + 5)]
    data = b"[\n" + b",\n".join([*good[:before], bad, *good[before:]]) + b"\n]\n"
    whole = read_whole(data)
    assert [(record, line) for record, line, _ in whole.faults] == [(before + 1, before + 2)]
    assert whole.rows == [(str(n),) for n in range(before + 5)]
    assert whole.account.total == count_lines(data)


@pytest.mark.parametrize(
    ("bad", "costs"), [(b'{"a": 1 2}', 1), (b'{"a": 1, "b": [{}, {}] 7}', 1), (b'{"a": 1', 1)]
)
def test_an_array_on_one_line_goes_on_after_a_bad_element(bad, costs):
    good = [b'{"a": "%d"}' % n for n in range(6)]
    whole = read_whole(b"[" + b",".join([*good[:3], bad, *good[3:]]) + b"]")
    assert whole.faults == [(4, 1, "invalid_json")] * costs
    assert whole.rows == [(str(n),) for n in range(6)]
    assert whole.account.total == 1


def test_objects_over_several_lines_go_on_after_a_bad_one():
    good = json.dumps([{"a": str(n), "b": [{"c": 1}, {"c": 2}]} for n in range(9)], indent=2)
    lines = good.splitlines()
    del lines[lines.index('    "a": "4",') + 4]
    whole = read_whole("\n".join(lines).encode())
    assert [row[0] for row in whole.rows] == ["0", "1", "2", "3", "5", "6", "7", "8"]
    assert len(whole.faults) == 1
    assert whole.account.total == len(lines)


def test_nothing_but_damage_is_read_as_fast_as_anything_else():
    for bad in (b'{"a": 1,', b'{"a" {', b'{"a": 1 2} ', b"{1,[", b'{"a": "x}, '):
        whole = read_whole(b'[{"a": 1},' + bad * 5_000 + b"]", max_record_bytes=2**20)
        assert whole.faults


def test_blank_lines_are_no_records():
    whole = read_whole(b'\n{"a": 1}\n\n\r\n{"a": 2}\n\n')
    assert whole.lines == [2, 5]
    assert (whole.account.record_lines, whole.account.blank_lines) == (2, 4)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_other_encodings(codec):
    whole = read_whole('{"a": "Zoë"}\n{"a": "x"}\n'.encode(codec))
    assert whole.rows == [("Zoë",), ("x",)]


def test_an_empty_array_has_the_contracts_columns():
    columns = (ExpectedColumn(name="a", headers=frozenset({"a"})),)
    assert read_whole(b"[]", expectation=Expectation(columns=columns)).names == ("a",)
    with pytest.raises(PermanentError) as refused:
        read_whole(b"[]")
    assert refused.value.code is Code.EMPTY_FILE


def test_a_damaged_first_line_is_one_line():
    whole = read_whole(b'{"a\r: 1}\n{"a": 2}\n')
    assert (whole.found.format, whole.rows, whole.lines) == ("jsonl", [("2",)], [2])
    assert whole.faults[0][1] == 1


@settings(max_examples=300, deadline=None)
@given(st.data(), st.booleans())
def test_damage_costs_what_it_touches(data, array):
    count = 12
    good = [b'{"id": %d, "t": "x%d"}' % (n, n) for n in range(count)]
    text = bytearray(b"[\n" * array + (b",\n" if array else b"\n").join(good) + b"\n]\n" * array)
    touched = set()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(3 * array, len(text) - 1))
        text[place] = data.draw(st.integers(0, 255))
        touched |= {text.count(b"\n", 0, place)}
    content = bytes(text)
    try:
        whole = read_whole(content)
    except PermanentError:
        return
    if whole.found.format == "csv":
        return
    assert whole.account.total == count_lines_of_json(content, whole.found.format == "json")
    if not whole.faults and "id" in whole.names:
        assert len(whole.rows) <= count + len(touched)


def count_lines_of_json(content: bytes, array: bool) -> int:
    if array:
        return count_lines(content)
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
