# autograd, DTensor and torch.compile load these at first use: once here, not in every rank
import torch._dynamo
import torch._inductor.lowering
import torch.fx.experimental.symbolic_shapes  # noqa: F401
