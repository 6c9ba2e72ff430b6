"""Results of a part, of overrides or of another file never take the place of published ones, and say what they are."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from tiny import TINY, contents, raising, refusal

from bdl.publishing import mlflow_export
from bdl.records.run_folder import RunFolder
from bdl.spec import load_request
from bdl.stored_results.departures import count_beyond_first, list_departures
from bdl.stored_results.loading import LoadedResults

TWO = TINY.replace("  fixed:", "  fixed: &fixed").replace(
    "evaluation:", "  other: *fixed\nevaluation:"
)
FASTER = "--set", "entries.fixed.hyper.learning_rate=0.5"
URI = "sqlite:///runs.db"


@pytest.fixture
def run(invoke):
    return lambda *words: invoke("run", *words, "--no-compile", "--tracking", "none")


@pytest.fixture(scope="module")
def clone(tmp_path_factory, ran) -> Path:
    """Folder of the protocol as a clone has it: without the store."""
    place = tmp_path_factory.mktemp("clone")
    (place / "tiny.yaml").write_text(TINY, "utf-8")
    ran(place, "run", "tiny.yaml", "--no-compile", "--tracking", "none")
    for path in (folder := place / "results/tiny").glob("store.*"):
        path.unlink()
    shutil.rmtree(folder / "store")
    return folder


@pytest.fixture
def published(clone, tiny) -> Path:
    """Copy the folder of the protocol to be changed."""
    return Path(shutil.copytree(clone, tiny.parent / "results/tiny"))


def protocol(folder: Path) -> dict[Path, bytes | None]:
    """Files of a folder, without its variants and profiles."""
    return {
        path: data
        for path, data in contents(folder).items()
        if not {"variants", "quick"} & set(path.parts)
    }


def newest() -> Path:
    return max(Path("results").rglob("run.json"), key=lambda path: path.stat().st_mtime_ns).parent


OTHERS = {
    "training": (TINY.replace("epochs: 1", "epochs: 2"), "diabetes/fixed of another spec"),
    "seed": (TINY.replace("title:", "seed: 1\ntitle:"), "of another spec"),
    "splits": (
        TINY.replace("splits: 2", "splits: 1"),
        "1 published final fits that this benchmark lacks",
    ),
    "entries": (
        TINY.replace("  fixed:", "  other:"),
        "2 published final fits that this benchmark lacks",
    ),
}


@pytest.mark.parametrize(("text", "reason"), OTHERS.values(), ids=OTHERS)
def test_another_file_of_the_same_name_is_refused(published, tmp_path, run, text, reason):
    copy = tmp_path / "copy.yaml"
    copy.write_text(text, "utf-8")
    before = contents(tmp_path)
    for options in ((), ("--fresh",)):
        error = refusal(run(copy, *options))
        assert reason in error
        assert "a name of its own" in error
        assert "--results" in error
    assert contents(tmp_path) == before


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize("options", [(), ("--changed",), ("--fresh",)])
def test_an_entry_of_a_new_name_leaves_the_earlier_rows_in_the_store(tiny, run, invoke, options):
    assert run(tiny)[0] == 0
    tiny.write_text(TINY.replace("  fixed:", "  other:"), "utf-8")
    assert run(tiny, *options)[0] == 0
    shown = invoke("table", tiny, "--wide")[1]
    assert ("other" in shown, "fixed" in shown) == (True, False)
    tiny.write_text(TINY, "utf-8")
    code, out, _ = run(tiny)
    assert (code, "Everything is in the store already" in out) == (0, True)


PARTS = {
    "both": (
        ["--splits", "1-1", *FASTER],
        "Not the protocol: 1 of 2 splits (1); entries.fixed.hyper.learning_rate=0.5.",
        "Not the protocol: 1 of 2 splits (1); 1 changed setting.",
    ),
    "profile": (
        ["--profile", "quick"],
        "A part of the protocol: profile quick (the first 1 of 2 splits).",
        "A part of the protocol: profile quick.",
    ),
}


@pytest.mark.usefixtures("blank_figures")
@pytest.mark.parametrize(("options", "remark", "caption"), PARTS.values(), ids=PARTS)
def test_a_variant_leaves_what_is_published_and_says_what_it_is(
    published, tiny, run, invoke, options, remark, caption
):
    """The protocol says nothing of the kind."""
    shown = (published / "table.md").read_text("utf-8") + invoke("table", tiny)[1]
    assert "protocol:" not in shown
    origin = json.loads((published / "run.json").read_text("utf-8"))
    assert (origin["overrides"], origin["narrowed_to"]) == ({}, None)
    assert origin["machine"]["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert origin["compiled"] == {"diabetes/fixed": []}

    before = protocol(published)
    code, out, err = run(tiny, *options)
    assert (code, err) == (0, "")
    assert out.count(caption) == 1
    assert protocol(published) == before
    place = newest()
    assert place.resolve() != published
    assert (
        (place / "table.md").read_text("utf-8").startswith(f"**{remark}**\n\n".replace("_", r"\_"))
    )
    assert all(
        cell["note"].startswith(remark)
        for cell in json.loads((place / "table.json").read_text("utf-8"))
    )
    for format in ("markdown", "csv", "latex", "json", "rich"):
        code, out, _ = invoke("table", tiny, *options, "--format", format)
        assert code == 0
        expected = caption if format == "rich" else remark
        assert expected.replace("_", "") in out.replace("\\", "").replace("_", "")
    rate = 0.5 if FASTER[1] in options else 0.01
    origin = json.loads((place / "run.json").read_text("utf-8"))
    assert origin["overrides"] == (
        {"entries.fixed.hyper.learning_rate": rate} if rate == 0.5 else {}
    )
    assert origin["spec"]["entries"]["fixed"]["hyper"]["learning_rate"] == rate


def test_an_entry_that_a_profile_runs_on_no_data_set_has_not_come_since():
    large = load_request("uci-contenders", "large")
    kept = replace(large, benchmark=large.benchmark.select())
    assert "nuts" in large.benchmark.entries
    assert "nuts" not in kept.benchmark.entries
    assert list_departures(kept, large.benchmark) == []


def test_the_whole_reuses_the_fits_of_parts(tiny, run):
    assert run(tiny, "--splits", "1-1")[0] == 0
    part = RunFolder(newest()).tabulate()
    code, out, _ = run(tiny)
    assert code == 0
    assert "final fits reused from other runs of tiny: 1" in out
    whole = RunFolder(Path("results/tiny")).tabulate()
    pd.testing.assert_frame_equal(whole[whole.split == 1].reset_index(drop=True), part)
    code, out, _ = run(tiny, *FASTER)
    assert "other runs" not in out, "those are other fits"


def test_rows_keep_what_they_were_made_with_when_the_file_changes(published, tiny, run, invoke):
    _, before, _ = invoke("table", tiny, "--format", "markdown")
    tiny.write_text(
        TINY.replace("learning_rate: 0.01", "learning_rate: 0.5").replace("A tiny", "Another"),
        "utf-8",
    )
    code, after, _ = invoke("table", tiny, "--format", "markdown")
    assert code == 0
    head = "**Not the protocol: the file had entries.fixed.hyper.learning\\_rate=0.01 then.**\n\n"
    assert after == head + before
    tiny.write_text(TINY.replace("A tiny benchmark", "Another title"), "utf-8")
    assert invoke("table", tiny, "--format", "markdown")[1] == before


def test_what_is_exported_is_what_was_run(tiny, run, invoke, monkeypatch):
    told = {}

    def take(benchmark, store, cells, **more):
        told.update(more, parameters=[mlflow_export.list_parameters(cell) for cell in cells])
        return ["a run"]

    monkeypatch.setattr(mlflow_export, "export_run", take)
    assert run(tiny, *FASTER)[0] == 0
    error = refusal(invoke("table", tiny, "--tracking", URI))
    assert "no results in results/tiny; start with: bdl-bench run" in error
    assert (
        f"(there is: bdl-bench table {tiny} --set entries.fixed.hyper.learning_rate=0.5)" in error
    )
    tiny.write_text(TINY.replace("epochs: 1", "epochs: 3"), "utf-8")
    code, out, err = invoke("table", tiny, *FASTER, "--format", "csv", "--tracking", URI)
    assert (code, err) == (0, f"1 runs are in {URI}\n")
    assert out.startswith("benchmark,"), "the table alone"
    (parameters,) = told["parameters"]
    assert parameters["hyper.learning_rate"] == "0.5"
    assert parameters["training.epochs"] == "1"
    assert told["variant"].startswith("learning_rate-0_5-")
    assert "hyper.learning_rate=0.5" in told["tags"]["bdl.protocol"]
    assert "the file had entries.fixed.training.epochs=1 then" in told["tags"]["bdl.protocol"]


def test_figures_never_take_the_place_of_plots_that_have_data(
    published, tiny, run, invoke, monkeypatch
):
    """Neither those of a part, nor those of a run that was interrupted before its first fit."""
    before = protocol(published)
    with monkeypatch.context() as patch:
        patch.setattr("bdl.api.running.run_tasks", raising(KeyboardInterrupt()))
        assert run(tiny)[0] == 130
    for path, content in contents(published).items():
        if path.relative_to(published).parts[0].startswith("store"):
            before[path] = content
    assert invoke("figures", tiny)[0] == 0
    assert {
        path: data for path, data in protocol(published).items() if path.suffix != ".pdf"
    } == before
    assert "no results in" in refusal(invoke("figures", tiny, *FASTER))
    (published / "rows.parquet").unlink()
    assert "no results in results/tiny; start with: bdl-bench run" in refusal(
        invoke("figures", tiny)
    )


def test_figures_that_are_no_longer_drawn_do_not_stay(tiny, run):
    stale = Path("results/tiny/figures/tiny-rmse.png")
    stale.parent.mkdir(parents=True)
    for path in (stale, stale.with_name("notes.txt"), stale.with_name("other-rmse.png")):
        path.write_text("old")
    assert run(tiny)[0] == 0
    names = {path.name for path in stale.parent.iterdir()}
    assert names == {"notes.txt", "other-rmse.png", "tiny-nmll.png"}


def remark(made):
    """Say what rows of an earlier version are not."""
    none = pd.DataFrame()
    return LoadedResults.of(Path(), made, made.benchmark, none, none, has_spec=False).remark


def test_a_profile_is_told_in_what_it_changes():
    made = load_request("blindness-detection", "cpu")
    told = remark(made)
    assert told.startswith(
        "Not the protocol: profile cpu (datasets.0.size 224, datasets.0.features efficientnet-lite0, "
    )
    for words in (
        'model {"activation":"relu","hidden":[128],"name":"mlp"}',
        "search.space.prior_precision.high 300.0",
        "hyper.prior_precision 30.0",
    ):
        assert words in told
    assert told.count("search.space.learning_rate.low") == 1, "once for all entries"


def test_lists_are_told_by_names(tiny):
    made = load_request(str(tiny), overrides=["metrics=[nmll, {name: rmse, standardised: true}]"])
    assert remark(made) == "Not the protocol: metrics=[nmll, rmse_true]."


def test_changes_of_entries_that_are_not_run_are_not_told(tiny):
    more = "profiles:\n  quick:\n    entries: {fixed: {training: {epochs: 7}}, other: {training: {batch_size: 3}}}\n"
    tiny.write_text(TWO.partition("profiles:")[0] + more, "utf-8")
    whole, part = (load_request(str(tiny), "quick", entries=names) for names in ((), ("other",)))
    assert remark(whole) == (
        "Not the protocol: profile quick (training.epochs 7, training.batch_size 3)."
    )
    assert remark(part) == "Not the protocol: profile quick (training.batch_size 3)."


MINE = (
    "entries.mine={model: {name: linear}, likelihood: {name: gaussian}, "
    "method: {name: conjugate}, hyper: {prior_precision: 1, noise_precision: 0.001}}"
)


def test_an_entry_of_ones_own_stands_among_the_published_ones(published, tiny, run, invoke):
    """Only it is trained, the others are imported, and the protocol stays the protocol."""
    before = protocol(published)
    code, out, err = run("tiny.yaml", "--published", "--set", MINE)
    assert code == 0, err
    assert "final fits imported from published rows: 2" in out
    assert "mine is an entry of its own" in out
    assert "withheld" not in out
    rows = RunFolder(newest()).tabulate()
    assert set(zip(rows.entry, rows.status, strict=True)) == {("fixed", "ok"), ("mine", "ok")}
    assert protocol(published) == before
    cells = json.loads(invoke("table", "tiny.yaml", "--set", MINE, "--format", "json")[1])
    assert {cell["method"] for cell in cells} == {"fixed", "mine"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("entries.mine.method={name: conjugate}", "unknown entry 'mine'"),
        ("entries.mine={method: {name: conjugat}}", "did you mean conjugate"),
        ("entries.mine=fixed", "entries.mine: should be a mapping"),
    ],
)
def test_an_entry_of_ones_own_is_whole(tiny, run, change, reason):
    assert reason in refusal(run("tiny.yaml", "--set", change))


def cells_of_table(invoke, *words):
    code, out, err = invoke("table", "tiny.yaml", *words, "--format", "json")
    assert code == 0, err
    return {cell["method"]: cell for cell in json.loads(out) if cell["statistic"] == "mean"}


def test_a_table_is_of_the_mean_over_replicates(published, tiny, run, invoke):
    before = cells_of_table(invoke)["fixed"]
    assert run("tiny.yaml", "--set", "seed=1")[0] == 0
    rows = [RunFolder(folder).tabulate().nmll for folder in (published, published / "seed-1")]
    means = [scores.mean() for scores in rows]
    assert means[0] != means[1]
    after = cells_of_table(invoke)["fixed"]
    assert (before["replicates"], after["replicates"]) == (1, 2)
    assert after["ours"] == pytest.approx(sum(means) / 2)
    assert after["seed_sd"] == pytest.approx(abs(means[0] - means[1]) / 2**0.5)
    assert after["ours_se"] == pytest.approx(((rows[0] + rows[1]) / 2).sem())
    assert "SD of seeds (n)" in invoke("table", "tiny.yaml", "--wide")[1]
    alone = cells_of_table(invoke, "--set", "seed=1")["fixed"]
    assert (alone["replicates"], alone["ours"]) == (1, pytest.approx(means[1]))


def test_rows_of_another_spec_are_no_replicates(published, tiny, run, invoke):
    assert run("tiny.yaml", "--set", "seed=1")[0] == 0
    tiny.write_text(TINY.replace("learning_rate: 0.01", "learning_rate: 0.02"), "utf-8")
    assert cells_of_table(invoke)["fixed"]["replicates"] == 1


def test_a_replicate_whose_seed_the_file_has_taken_counts_once(published, tiny, run, invoke):
    assert run("tiny.yaml", "--set", "seed=1")[0] == 0
    tiny.write_text(TINY.replace("title:", "seed: 1\ntitle:"), "utf-8")
    assert cells_of_table(invoke)["fixed"]["replicates"] == 1


def test_a_part_of_a_replicate_is_none(published, tiny, run, invoke):
    """Its splits are fewer than those of the protocol: its folder is that of a part."""
    assert run("tiny.yaml", "--set", "seed=1", "--splits", "1")[0] == 0
    assert (newest().parent.name, newest().parent.parent.name) == ("variants", "seed-1")
    assert cells_of_table(invoke)["fixed"]["replicates"] == 1


@pytest.mark.usefixtures("blank_figures")
def test_some_methods_of_a_replicate_are_replicates(tiny, run, invoke):
    """Once, though the whole of the replicate has them as well."""
    tiny.write_text(
        TINY.replace("  fixed:", "  fixed: &own").replace(
            "evaluation:", "  other: *own\nevaluation:"
        ),
        "utf-8",
    )
    assert run("tiny.yaml")[0] == 0
    for words, counts in ((("--method", "fixed"), (2, 1)), ((), (2, 2))):
        assert run("tiny.yaml", "--set", "seed=1", *words)[0] == 0
        cells = cells_of_table(invoke)
        assert (cells["fixed"]["replicates"], cells["other"]["replicates"]) == counts


def test_a_remark_names_the_first_changes_and_counts_the_others():
    """One left out would not be shorter as a count."""
    texts = [f"setting {number}" for number in range(12)]
    assert count_beyond_first(texts[:9]) == texts[:9]
    assert count_beyond_first(texts) == [*texts[:8], "and 4 other settings"]
