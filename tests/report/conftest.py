"""One invented grid of results for all report tests: two jobs lack a record, one of them failed."""

from __future__ import annotations

import pandas as pd
import pytest

from mrp.report.comparisons import compare
from mrp.report.findings import Finding, build_findings
from mrp.report.frame import Results, load_results
from tests.report.synthetic import REPLICA, Written, write_results

N = 40
MISSING = "S.mini.speculative.default.k4"
FAILED = "S.mini.direct.k2.k3"


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    directory = tmp_path_factory.mktemp("report")
    return write_results(directory, N, missing=(MISSING,), failed=(FAILED,))


@pytest.fixture(scope="session")
def results(written: Written) -> Results:
    return load_results(written.suite, written.results)


@pytest.fixture(scope="session")
def rows(results: Results) -> pd.DataFrame:
    return compare(results)


# ---- more backbones, and the ablations: heads by seed and depth, options ------------------------


@pytest.fixture(scope="session")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write_results(tmp_path_factory.mktemp("replica"), N, text=REPLICA)


@pytest.fixture(scope="session")
def replica_results(replica: Written) -> Results:
    return load_results(replica.suite, replica.results)


@pytest.fixture(scope="session")
def replica_rows(replica_results: Results) -> pd.DataFrame:
    return compare(replica_results)


@pytest.fixture(scope="session")
def replica_findings(replica_results: Results, replica_rows: pd.DataFrame) -> list[Finding]:
    return build_findings(replica_results, replica_rows)
