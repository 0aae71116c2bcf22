"""Stand-ins for the `distributed.py` files that shardway replaces: one module per file, since they differ.

Each keeps its file's names, argument order, return values and gradients, so that one import line changes.
Where a file would fail for want of a group, and does not say so itself, a call acts as if alone in a group.
"""
