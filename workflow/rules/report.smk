# Tables and figures of the suite that was run last, at fixed places.


rule tables:
    input:
        suite=ancient(SUITE_FILE),
        records=[PATHS.record(job) for job in JOBS],
        published="config/published.csv",
    output:
        html=report("results/tables.html", category="Tables"),
        csv="results/tables.csv",
    log:
        PATHS.log("report", "tables"),
    conda:
        "../../environment.yml"
    params:
        heads=HEADS,
        code=source.code_version(*source.REPORT_CODE),
    message:
        "Write {output}"
    shell:
        "mrp report tables --suite {input.suite} --heads {params.heads} --results results"
        " --out results --published {input.published} > {log} 2>&1"


rule figures:
    input:
        suite=ancient(SUITE_FILE),
        records=[PATHS.record(job) for job in JOBS],
    output:
        expand("figures/{name}.{form}", name=grid.FIGURES, form=["pdf", "png", "csv"]),
        report(expand("figures/{name}.svg", name=grid.FIGURES), category="Figures"),
    log:
        PATHS.log("report", "figures"),
    conda:
        "../../environment.yml"
    params:
        heads=HEADS,
        code=source.code_version(*source.REPORT_CODE),
    message:
        "Draw the figures"
    shell:
        "mrp report figures --suite {input.suite} --heads {params.heads} --results results"
        " --out figures > {log} 2>&1"
