"""Benchmark files: schema, loading, checks, profiles, overrides, requests and hashes."""

from bdl.spec.entry import Entry, EvaluationSettings, Range, Search
from bdl.spec.fields import SweepPoint, sha256, to_canonical_json
from bdl.spec.labels import DatasetName, MetricName
from bdl.spec.loading import build_json_schema, list_benchmarks, list_profiles, load_benchmark
from bdl.spec.request import Request, find_differences, load_request, parse_splits
from bdl.spec.schema import Benchmark
from bdl.spec.sections import Note, PaperTables, Preparation, Record, Training

__all__ = [
    "Benchmark",
    "DatasetName",
    "Entry",
    "EvaluationSettings",
    "MetricName",
    "Note",
    "PaperTables",
    "Preparation",
    "Range",
    "Record",
    "Request",
    "Search",
    "SweepPoint",
    "Training",
    "build_json_schema",
    "find_differences",
    "list_benchmarks",
    "list_profiles",
    "load_benchmark",
    "load_request",
    "parse_splits",
    "sha256",
    "to_canonical_json",
]
