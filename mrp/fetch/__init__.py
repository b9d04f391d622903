"""`mrp fetch`: everything a suite needs from the hub, on a machine that can reach it.

`pieces` says what a suite needs, `checkpoints` and `benchmarks` what of it is missing here,
`suite` asks, prints the sizes and downloads, `hub` talks to huggingface_hub.
"""
