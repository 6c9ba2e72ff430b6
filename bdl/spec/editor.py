"""The schema that lets an editor complete and check benchmark files."""

from typing import Any

from bdl.spec.schema import Benchmark


def json_schema() -> dict[str, Any]:
    """Describe a benchmark file, profiles included.

    Returns
    -------
    dict
        JSON Schema, draft 2020-12.

    Raises
    ------
    InputError
        If a registered component cannot be imported.
    """
    schema = Benchmark.model_json_schema()
    fields = schema["properties"]
    del fields["profile"]
    fields["profiles"] = {
        "type": "object",
        "description": "Changes by profile name, laid over the file; lists are replaced.",
        "additionalProperties": {"type": "object", "propertyNames": {"enum": [*fields]}},
    }
    entry = schema["$defs"]["Entry"]["properties"]
    names = [name for name in entry if name not in ("by_dataset", "datasets", "evaluation")]
    for changes in (entry["by_dataset"], fields["by_dataset"]):
        changes["additionalProperties"] |= {"propertyNames": {"enum": names}}
    schema["description"] = "A benchmark of bdl-bench."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
