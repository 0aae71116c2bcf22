# loaded at first use otherwise: once here, not in every rank
import torch._dynamo
import torch._functorch.aot_autograd
import torch.distributed.checkpoint
import torch.distributed.nn
import torch.distributed.tensor
import torch.fx.experimental.symbolic_shapes  # noqa: F401
