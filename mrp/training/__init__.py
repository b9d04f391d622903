"""Training of backbones and heads: packing, noise, objectives and the loop they share.

Start at `mrp.training.backbone.train_backbone` and `mrp.training.head.train_head`. Nothing is
imported here, so that a suite's settings can be checked without loading torch.
"""
