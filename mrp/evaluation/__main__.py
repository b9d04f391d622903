"""`python -m mrp.evaluation ...`: the `lm_eval` command line with the model `mrp` registered."""

from __future__ import annotations

from lm_eval.__main__ import cli_evaluate

import mrp.evaluation.adapter  # noqa: F401 (registers the model)

if __name__ == "__main__":
    cli_evaluate()
