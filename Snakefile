# From a suite (config/suites/*.yaml) to the paper's tables and figures.
#
#   snakemake                        everything, on all cores
#   snakemake figures/pareto.pdf     one product and only what it needs
#   snakemake --config suite=NAME    another suite (heads=train: its heads trained here)
#   snakemake --config suite=NAME results_from=DIR   tables and figures of runs made elsewhere
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
from mrp.leases import TRAININGS, gpu_per_job, visible_devices
from mrp.live import Live
from mrp.places import check_folders

min_version("9.18")


configfile: "config/config.yaml"


# What `snakemake --report report.html` says above the tables and figures.
report: "workflow/report/workflow.rst"


try:
    SUITE_FILE = grid.suite_file(config["suite"])
    SUITE = grid.load_suite(SUITE_FILE)
    HEADS = grid.heads_from(config["heads"])
    RECORDS = grid.records_folder(config["results_from"])
    JOBS = {job.id: job for job in grid.jobs(SUITE, HEADS)}
    GPU = gpu_per_job(config["device"])
    TRAIN_GPUS = gpu_per_job(config["device"], config["gpus_per_training"], SUITE.jobs_per_gpu)
    PATHS = grid.Layout(SUITE, heads=HEADS)
    check_folders(PATHS.folders(JOBS))
except UserError as error:
    raise WorkflowError(f"mrp: error: {error}") from None

# A plan needs no checkpoint and no data set: a dry run says what is missing and plans everything.
# A run asks for what its own jobs need, before the first of them starts (onstart, below), so that
# one backbone can be run without the others, and tables written again without any.
if workflow.output_settings.dryrun and (MISSING := grid.missing_pieces(SUITE, HEADS)):
    logger.warning(f"mrp: note: {grid.missing_message(SUITE, MISSING, HEADS)}")

# GPUs that may be busy at once, where --resources does not say it: those of this machine. A job
# asks for one place, of which a GPU has as many as the suite says.
if visible_devices():
    gpus = workflow.global_resources.setdefault("gpu", len(visible_devices())).value
    workflow.global_resources["gpu"] = gpus * SUITE.jobs_per_gpu
    trainings = gpus * min(SUITE.jobs_per_gpu, TRAININGS)
    workflow.global_resources.setdefault("training", trainings)

# The rules' `mrp` is the one beside this Python, also where its environment is not activated.
os.environ.update(PATH=f"{os.path.dirname(sys.executable)}{os.pathsep}{os.getenv('PATH')}")


# On a terminal: a line of state under the messages.
LIVE = Live(logger, PATHS.root / "runs", SUITE.name)


wildcard_constraints:
    backbone="|".join(map(re.escape, SUITE.backbones)),
    head="|".join(map(re.escape, SUITE.heads)) or "none",
    job="|".join(map(re.escape, JOBS)),


onstart:
    planned = [(job.rule.name, job.wildcards) for job in workflow.dag.needrun_jobs()]
    try:
        grid.check_pieces(
            SUITE,
            HEADS,
            wanted=[JOBS[w.job] for name, w in planned if name == "decode"],
            trainings=[(w.backbone, w.head) for name, w in planned if name == "train_head"],
        )
    except UserError as error:
        raise WorkflowError(f"mrp: error: {error}") from None
    if not workflow.output_settings.quiet:
        LIVE.start(len(planned))


onsuccess:
    LIVE.close()


onerror:
    LIVE.close()


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
