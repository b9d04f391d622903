# The grid: one job a cell, on the generated tasks' data or on a benchmark's.


rule data:
    input:
        suite=ancient(SUITE_FILE),
    output:
        PATHS.data_files,
    log:
        PATHS.log("data", "data"),
    conda:
        "../../environment.yml"
    params:
        out=PATHS.data_dir,
        digest=grid.data_digest(SUITE),
    message:
        "Generate the test problems"
    shell:
        "mrp data --suite {input.suite} --out {params.out} > {log} 2>&1"


# journal.jsonl, from which a killed job goes on, is no output: a failed job's outputs are deleted.
rule decode:
    input:
        suite=ancient(SUITE_FILE),
        data=lambda w: PATHS.data_inputs(JOBS[w.job].tasks),
        backbone=lambda w: PATHS.backbone_inputs(JOBS[w.job].backbone),
        head=lambda w: PATHS.head_inputs(JOBS[w.job].backbone, JOBS[w.job].head),
    output:
        PATHS.record("{job}"),
        PATHS.run_dir("{job}") / "samples.jsonl",
    log:
        PATHS.log("decode", "{job}"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        gpu=GPU,
        device=config["device"],
    params:
        backbone=lambda w: PATHS.backbone_path(JOBS[w.job].backbone),
        head=lambda w: PATHS.head_option(JOBS[w.job]),
        data=lambda w: PATHS.task_data_dir(JOBS[w.job].tasks),
        out=lambda w: PATHS.run_dir(w.job),
        digest=lambda w: JOBS[w.job].digest,
    message:
        "Decode {wildcards.job}"
    shell:
        "mrp decode --suite {input.suite} --job {wildcards.job}"
        " --backbone-path {params.backbone} {params.head} --data {params.data} --out {params.out}"
        " --device {resources.device} --threads {threads} > {log} 2>&1"
