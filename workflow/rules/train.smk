# Checkpoints that the suite has a recipe for (`train:`). They are used where no `path:` is given.
#
# Only the finished checkpoint is declared: Snakemake deletes a failed job's outputs, and the resume
# point and the metrics beside them must outlive a kill.
#
# What most decode jobs wait for is trained first; they fill the places that trainings leave.


rule backbone:
    input:
        [
            PATHS.trained_backbone_dir(name) / "model.safetensors"
            for name, spec in SUITE.backbones.items()
            if spec.train is not None
        ],


rule heads:
    input:
        [
            PATHS.trained_head_dir(backbone, name) / "model.safetensors"
            for backbone in SUITE.backbones
            for name, spec in SUITE.heads.items()
            if spec.train is not None
        ],


rule train_backbone:
    input:
        suite=ancient(SUITE_FILE),
    output:
        multiext(
            f"{PATHS.trained_backbone_dir('{backbone}')}/",
            "config.json",
            "model.safetensors",
            "provenance.json",
        ),
    log:
        PATHS.log("train_backbone", "{backbone}"),
    priority: lambda w: grid.waiting(JOBS.values(), w.backbone)
    conda:
        "../../environment.yml"
    # Everything waits for it, so it may have two cores to itself.
    threads: 2
    resources:
        gpu=TRAIN_GPUS,
        training=1,
        device=config["device"],
    params:
        out=lambda w: PATHS.trained_backbone_dir(w.backbone),
        digest=lambda w: grid.training_digest(SUITE, SUITE.backbones[w.backbone]),
    message:
        "Train backbone {wildcards.backbone} (progress: {log})"
    shell:
        "mrp train-backbone --suite {input.suite} --backbone {wildcards.backbone}"
        " --out {params.out} --device {resources.device} --gpus {resources.gpu}"
        " --threads {threads} > {log} 2>&1"


rule train_head:
    input:
        suite=ancient(SUITE_FILE),
        backbone=lambda w: PATHS.backbone_inputs(w.backbone),
    output:
        multiext(
            f"{PATHS.trained_head_dir('{backbone}', '{head}')}/",
            "config.json",
            "model.safetensors",
            "provenance.json",
        ),
    log:
        PATHS.log("train_head", "{backbone}.{head}"),
    priority: lambda w: grid.waiting(JOBS.values(), w.backbone, w.head)
    conda:
        "../../environment.yml"
    # One core each: two heads, or a head and a decode job, share a small machine best.
    threads: 1
    resources:
        gpu=TRAIN_GPUS,
        training=1,
        device=config["device"],
    params:
        backbone=lambda w: PATHS.backbone_path(w.backbone),
        out=lambda w: PATHS.trained_head_dir(w.backbone, w.head),
        digest=lambda w: grid.training_digest(SUITE, SUITE.heads[w.head]),
    message:
        "Train head {wildcards.head} on {wildcards.backbone} (progress: {log})"
    shell:
        "mrp train-head --suite {input.suite} --backbone {wildcards.backbone}"
        " --head {wildcards.head} --backbone-path {params.backbone} --out {params.out}"
        " --device {resources.device} --gpus {resources.gpu} --threads {threads} > {log} 2>&1"
