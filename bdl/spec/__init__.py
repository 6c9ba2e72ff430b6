"""What a benchmark file may say: reading, checking, profiles, overrides and hashes."""

from bdl.spec.editor import json_schema
from bdl.spec.entry import Entry, Evaluation, Prior, Range, Search, Training
from bdl.spec.loading import list_benchmarks, list_profiles, load_benchmark
from bdl.spec.schema import Benchmark, Note, PaperTables, Preparation
from bdl.spec.splits import parse_splits

__all__ = [
    "Benchmark",
    "Entry",
    "Evaluation",
    "Note",
    "PaperTables",
    "Preparation",
    "Prior",
    "Range",
    "Search",
    "Training",
    "json_schema",
    "list_benchmarks",
    "list_profiles",
    "load_benchmark",
    "parse_splits",
]
