"""A model with complex parameters, or with equal pairs of reals: ranks must train both alike."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["Pairs"]


class Pairs(nn.Module):
    """Complex parameters, including a vector, beside a real one; or the same as pairs of reals."""

    def __init__(self, dtype: torch.dtype, is_complex: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        for name, shape in {"weight": (64, 48), "other": (30, 40), "bias": (7,)}.items():
            value = torch.randn(shape, dtype=dtype, generator=generator)
            setattr(self, name, nn.Parameter(value if is_complex else torch.view_as_real(value).clone()))
        self.real = nn.Parameter(torch.randn(50, 50, generator=generator))

    def forward(self, rank: int, step: int) -> torch.Tensor:
        """Return the loss of a rank's data."""
        generator = torch.Generator().manual_seed(100 * step + rank)
        loss = torch.zeros((), dtype=torch.float64)
        for parameter in (self.weight, self.other, self.bias, self.real):
            reals = torch.view_as_real(parameter) if parameter.is_complex() else parameter
            loss = loss + ((reals - torch.randn(reals.shape, generator=generator)) ** 2).double().sum()
        return loss
