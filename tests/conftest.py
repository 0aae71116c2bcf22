"""Keeps the pytest process fit to fork ranks from: torch loaded, no threads started."""

import torch

torch.set_num_threads(1)
