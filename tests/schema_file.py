"""Writes docs/plan.schema.json, the JSON Schema of a plan document: python -m tests.schema_file"""

from __future__ import annotations

import json
from pathlib import Path

from optimizer.explain.document import PlanDocument

PATH = Path(__file__).parents[1] / "docs" / "plan.schema.json"


def schema_text() -> str:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **PlanDocument.model_json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write_schema() -> None:
    PATH.write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    write_schema()
