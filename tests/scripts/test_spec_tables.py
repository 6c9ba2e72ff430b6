"""The tables of fields in the page of the benchmark file are those of its schema."""

import spec_tables


def test_the_page_has_the_tables_of_the_schema():
    page = spec_tables.PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- fields: ") == len(spec_tables.TABLES)
    assert spec_tables.filled(page) == page, "docs/spec.md is stale: python scripts/spec_tables.py"


def test_a_table_has_a_line_for_each_field():
    head, *rows = (
        spec_tables.filled("<!-- fields: Training -->\n\n| stale |\n\nText\n").split("\n\n")[1].split("\n")[1:]
    )
    assert head == "|---|---|---|"
    assert [row.split(" | ")[:2] for row in rows] == [
        ["| `epochs`", "required"],
        ["| `batch_size`", "required"],
        ["| `schedule`", "`{name: constant}`"],
        ["| `sampling`", "`without_replacement`"],
        ["| `incomplete`", "`drop`"],
        ["| `dtype`", "`float32`"],
    ]
