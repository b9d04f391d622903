# Tables and figures of the suite that was run last, at fixed places.


# A page a run; the tables' cells link to them.
rule pages:
    input:
        suite=ancient(SUITE_FILE),
        records=[PATHS.record(job) for job in JOBS],
    output:
        report(
            PATHS.pages,
            caption="../report/runs.rst",
            category="Runs",
            labels={"page": "all runs"},
        ),
    log:
        PATHS.log("report", "pages"),
    conda:
        "../../environment.yml"
    params:
        heads=HEADS,
        code=source.code_version(*source.REPORT_CODE),
    message:
        "Write a page for every run"
    shell:
        "mrp report pages --suite {input.suite} --heads {params.heads} --results results"
        " > {log} 2>&1"


rule tables:
    input:
        suite=ancient(SUITE_FILE),
        records=PATHS.report_inputs(JOBS, RECORDS),
        pages=PATHS.report_pages(RECORDS),
        published="config/published.csv",
    output:
        html=report(
            "results/tables.html",
            caption="../report/tables.rst",
            category="Tables",
            labels={"page": "all tables"},
        ),
        tex="results/tables.tex",
        csv="results/tables.csv",
    log:
        PATHS.log("report", "tables"),
    conda:
        "../../environment.yml"
    params:
        heads=HEADS,
        source=PATHS.report_source(RECORDS),
        code=source.code_version(*source.REPORT_CODE),
    message:
        "Write {output}"
    shell:
        "mrp report tables --suite {input.suite} --heads {params.heads} {params.source}"
        " --out results --published {input.published} > {log} 2>&1"


rule figures:
    input:
        suite=ancient(SUITE_FILE),
        records=PATHS.report_inputs(JOBS, RECORDS),
    output:
        expand("figures/{name}.{form}", name=grid.FIGURES, form=["pdf", "png", "csv"]),
        [
            report(
                f"figures/{name}.svg",
                caption=f"../report/{name}.rst",
                category="Figures",
                labels={"figure": name},
            )
            for name in grid.FIGURES
        ],
    log:
        PATHS.log("report", "figures"),
    conda:
        "../../environment.yml"
    params:
        heads=HEADS,
        source=PATHS.report_source(RECORDS),
        code=source.code_version(*source.REPORT_CODE),
    message:
        "Draw the figures"
    shell:
        "mrp report figures --suite {input.suite} --heads {params.heads} {params.source}"
        " --out figures > {log} 2>&1"
