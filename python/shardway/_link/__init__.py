"""Links between jobs: a model moves from the ranks of one job to those of another, again and again.

address, claim, secret, wire: how processes find and admit one another, and what a message looks like. The thread that
holds a link is C++ (src/link/hub). member, link, hub_store: a process on the link. layouts, declaration, overlap: what
ranks declare. joint, prepared_moves, transfer: the
group of all ranks, the calls that move tensors in it, and a version on its way. load, portions, portion: destinations
that are functions, and what comes for them together. held: versions that are sent while the caller goes on. source,
target, model_plan: what callers hold.
"""

from .link import JobLink, connect
from .load import Load
from .model_plan import ModelPlan
from .source import Source
from .target import Target

__all__ = ["JobLink", "Load", "ModelPlan", "Source", "Target", "connect"]
