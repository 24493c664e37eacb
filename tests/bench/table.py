"""The sections as readable tables. Separate because the figures are the same in the JSON file."""

from __future__ import annotations

from figures import Section, text
from rich.console import Console
from rich.table import Table
from rich.text import Text


def show(console: Console, section: Section) -> None:
    """One section: title, what was done, the rows."""
    console.print()
    console.print(Text(section.title, style="bold"))
    for note in section.notes:
        console.print(Text(f"  {note}", style="dim"), soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(section.columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    for row in section.rows:
        table.add_row(*(Text(text(row.get(column))) for column in section.columns))
    console.print(table)


def show_facts(console: Console, facts: dict[str, str]) -> None:
    """Names and values."""
    for name, value in facts.items():
        console.print(Text(f"{name: <13} {value}"), soft_wrap=True)
