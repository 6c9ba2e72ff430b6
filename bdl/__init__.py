"""bdl-bench: benchmarks for Bayesian deep learning.

The Python API is in `bdl.api`, which is imported when it is first used, and the command line in
`bdl.cli.commands`.

Notes
-----
The way of a request from the command to the table, in the order in which things happen:

- A benchmark, its profile, overrides and a part make a request: `bdl.spec.request.Request`.
- It is planned as tasks, one method on one data set each: `bdl.plan.planning.plan_tasks`.
- `run` carries them out: `bdl.api.running.run_benchmark`.
- With ``run --published``, fits are copied instead of being made, by
  `bdl.stored_results.reuse.copy_fits`: those that `bdl.stored_results.reuse.find_published_fits`
  finds and that have the identities of today.
- What is missing is fitted, searches first: `bdl.execution.scheduler.run_tasks`.
- A minibatch update is the method's ``step``. That of methods that descend, such as `bbb`, is
  `bdl.methods.optim.Descent.step`, by their ``gradients``. ``update_trial`` in
  `bdl.training.updates.UpdateFunctions` calls it, mapped over the trials of a batch, and
  `bdl.training.engine.BatchedRun` does so again and again.
- A search chooses by `bdl.search.choice.choose_best_setting`.
- A fit is scored by `bdl.execution.scoring.compute_scores`.
- Its row is written by `bdl.records.run_folder.RunFolder.append`, in a file of
  `bdl.records.row_files.write_rows`.
- Tables and figures read the rows by `bdl.stored_results.loading.load_results`, and
  `bdl.reports.comparison.compare_with_papers` makes entries of tables of them.
- Whether a number agrees with the printed one is decided by `bdl.reports.verdicts.judge`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bdl.api import (
        Classifier,
        Fitted,
        Regressor,
        benchmark,
        calibration,
        export,
        fit,
        load,
        posterior,
        results,
    )

__version__: str

__all__ = [
    "Classifier",
    "Fitted",
    "Regressor",
    "__version__",
    "benchmark",
    "calibration",
    "export",
    "fit",
    "load",
    "posterior",
    "results",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("bdl-bench")
    if name not in __all__:
        raise AttributeError(f"module 'bdl' has no attribute '{name}'")
    return getattr(import_module("bdl.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
