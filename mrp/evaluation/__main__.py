"""`python -m mrp.evaluation ...`: the `lm_eval` command line that knows `mrp` and our tasks."""

from __future__ import annotations

import sys

from lm_eval.__main__ import cli_evaluate

import mrp.evaluation.adapter  # noqa: F401 (registers the model)
from mrp.errors import UserError
from mrp.evaluation.tasks import TASKS_DIR


def main() -> int:
    """Run lm-eval; our own errors are one line and exit code 2, as in `mrp`."""
    # An --include_path of the user's own stands for itself: lm-eval takes one.
    if "--tasks" in sys.argv and not any(a.startswith("--include_path") for a in sys.argv):
        sys.argv += ["--include_path", str(TASKS_DIR)]
    try:
        cli_evaluate()
    except UserError as error:
        print(f"mrp: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
