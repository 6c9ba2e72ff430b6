"""What a benchmark file may say: reading, checking, profiles, overrides and hashes."""

from bdl.spec.entry import Entry, Evaluation, Range, Search
from bdl.spec.fields import Point, canonical, sha256
from bdl.spec.labels import DatasetName, MetricName
from bdl.spec.loading import json_schema, list_benchmarks, list_profiles, load_benchmark
from bdl.spec.schema import Benchmark
from bdl.spec.sections import Note, PaperTables, Preparation, Record, Training
from bdl.spec.variant import Variant, differences, load_variant, parse_splits

__all__ = [
    "Benchmark",
    "DatasetName",
    "Entry",
    "Evaluation",
    "MetricName",
    "Note",
    "PaperTables",
    "Point",
    "Preparation",
    "Range",
    "Record",
    "Search",
    "Training",
    "Variant",
    "canonical",
    "differences",
    "json_schema",
    "list_benchmarks",
    "list_profiles",
    "load_benchmark",
    "load_variant",
    "parse_splits",
    "sha256",
]
