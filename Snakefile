# From a suite (config/suites/*.yaml) to the paper's tables and figures.
#
#   snakemake                        everything, on all cores
#   snakemake figures/pareto.pdf     one product and only what it needs
#   snakemake --config suite=NAME    another suite
#   snakemake -n                     what would run, and why
#
# The rules hold no logic: mrp.grid knows the jobs and the paths, each rule calls one mrp command.
import os
import re
import sys

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

from mrp import grid, source
from mrp.errors import UserError
from mrp.leases import gpu_per_job

min_version("9.18")


configfile: "config/config.yaml"


try:
    SUITE_FILE = grid.suite_file(config["suite"])
    SUITE = grid.load_suite(SUITE_FILE)
    JOBS = {job.id: job for job in grid.jobs(SUITE)}
    grid.check_checkpoints(SUITE)
    GPU = gpu_per_job(config["device"])
except UserError as error:
    raise WorkflowError(f"mrp: error: {error}") from None
PATHS = grid.Layout(SUITE)

# The rules' `mrp` is the one beside this Python, also where its environment is not activated.
os.environ.update(PATH=f"{os.path.dirname(sys.executable)}{os.pathsep}{os.getenv('PATH')}")


wildcard_constraints:
    backbone="|".join(map(re.escape, SUITE.backbones)),
    head="|".join(map(re.escape, SUITE.heads)) or "none",
    job="|".join(map(re.escape, JOBS)),


localrules:
    all,
    backbone,
    heads,


rule all:
    default_target: True
    input:
        "results/tables.html",
        "results/tables.csv",
        expand("figures/{name}.pdf", name=grid.FIGURES),


include: "workflow/rules/train.smk"
include: "workflow/rules/decode.smk"
include: "workflow/rules/report.smk"
