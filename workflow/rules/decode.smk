# The grid: one job a cell, on the generated tasks' data where a cell uses them.


rule data:
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
        "Generate the test problems of {config[suite]}"
    shell:
        "mrp data --suite {config[suite]} --out {params.out} > {log} 2>&1"


# journal.jsonl, from which a killed job goes on, is no output: a failed job's outputs are deleted.
rule decode:
    input:
        lambda w: PATHS.data_inputs(JOBS[w.job].tasks),
        lambda w: PATHS.backbone_inputs(JOBS[w.job].backbone),
        lambda w: PATHS.head_inputs(JOBS[w.job].backbone, JOBS[w.job].head),
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
    params:
        backbone=lambda w: PATHS.backbone_dir(JOBS[w.job].backbone),
        head=lambda w: PATHS.head_option(JOBS[w.job]),
        data=PATHS.data_dir,
        out=PATHS.run_dir("{job}"),
        digest=lambda w: JOBS[w.job].digest,
    message:
        "Decode {wildcards.job}"
    shell:
        "mrp decode --suite {config[suite]} --job {wildcards.job}"
        " --backbone-path {params.backbone} {params.head} --data {params.data} --out {params.out}"
        " --device {config[device]} --threads {threads} > {log} 2>&1"
