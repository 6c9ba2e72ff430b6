"""What a terminal shows of a run."""

from rich.console import Console

from bdl.api.progress import Display
from bdl.records.row import FitResult, Row


def row(cell, stage, split, trial):
    return Row(*cell.key, stage, split, trial, 0, "ok", None, {}, {}, 1.0, {})


def test_a_split_counts_as_searched_after_its_last_round_also_where_an_earlier_run_made_some(
    tiny, store
):
    cell = tiny(entries=["rounds"])[0]

    def shown(display):
        console = Console(record=True, width=120)
        with console.capture() as text:
            console.print(display._render().renderables[0])
        return [int(word) for word in text.get().splitlines()[1].split()[2:4]]

    display = Display(Console(), [cell], store)
    for trial in range(3):
        assert shown(display) == [0, 0]
        store.append([FitResult(row(cell, "search", 1, trial))])
        display.note_stored(cell, [row(cell, "search", 1, trial)])
    assert shown(display) == [1, 0]
    store.append([FitResult(row(cell, "final", split, 0)) for split in (1, 2)])
    assert shown(Display(Console(), [cell], store)) == [1, 1], "split 2 is not of this run"


def test_a_dumb_terminal_gets_plain_lines(tiny, store, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    cell = tiny(entries=["rounds"])[0]
    console = Console(record=True, force_terminal=True, width=120)
    with console.capture() as text, Display(console, [cell], store) as display:
        display.begin(1)
        display.note_stored(cell, [row(cell, "search", 0, 0)])
    assert "search, split 0: 1 trial in 1.0 s" in text.get()
