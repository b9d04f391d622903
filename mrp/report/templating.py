"""The templates of the report's pages, and what they may ask for."""

from __future__ import annotations

import json
from typing import Any

import jinja2
from markupsafe import Markup


def environment_of_templates() -> jinja2.Environment:
    """mrp/report/templates: everything is escaped, and a name that is not there is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mrp.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["embed"] = embed
    return environment


def embed(value: Any) -> Markup:
    """JSON that may stand inside a script element: "</script>" in an answer must not end it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))
