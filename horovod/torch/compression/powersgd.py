"""Gradients as products of two thin matrices: a power iteration that continues from step to step.

Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
2019, arXiv:1905.13727. ``orthonormal`` and ``product``, which every rank computes from the sums, are single
additions, multiplications and divisions in a fixed order. Matrix products and torch.sum depend on the
processor, and replicas on different machines would drift apart.
"""

from __future__ import annotations

import torch

from horovod.torch.compression.configured import MIN_ELEMENTS, ConfiguredCompressor, method_on_class_too
from horovod.torch.compression.contract import Rounds, State

NOTHING_LEFT = 1e-10  # for a column whose largest element was 1, in float64
CHUNK = 1 << 16  # elements of a product that are computed at a time, to fit the cache
GPU_CHUNK = 1 << 24  # on a GPU each part is a launch, and takes additional memory


class PowerSGDCompressor(ConfiguredCompressor):
    """Sends (m + n) * rank numbers for an m x n matrix: the product of one power iteration.

    A tensor is treated as a matrix of shape (first dimension, product of the others). The sum M of all ranks'
    matrices is approximated by ``P Q^T``: P = M Q is summed over ranks and its columns made orthonormal, then
    Q = M^T P is summed. Vectors, and matrices for which this does not save elements, travel exactly, in
    float32 at least. A NaN or infinity anywhere makes the whole result NaN. DistributedOptimizer adds what is
    lost to the next gradient (``error_feedback``).

    Args:
        rank: columns of P and Q (not a process' rank).
        warm_start: start with the last step's Q of the same name, instead of random numbers.
        seed: of the random numbers.
        error_feedback: see Compressor.
        min_elements: see Compressor.

    Raises:
        ValueError: an option has a value that is not allowed.
    """

    combine = "rounds"
    error_feedback = True

    def __init__(
        self,
        *,
        rank: int = 4,
        warm_start: bool = True,
        seed: int = 0,
        error_feedback: bool = True,
        min_elements: int | None = MIN_ELEMENTS,
    ) -> None:
        super().__init__(error_feedback=error_feedback, min_elements=min_elements)
        self.require_integer("rank", rank, 1)
        self.require("warm_start", warm_start, (False, True))
        self.require_integer("seed", seed, 0)
        self.rank, self.warm_start, self.seed = rank, warm_start, seed

    def pays(self, shape: torch.Size) -> bool:
        """Return whether P and Q have fewer elements than a tensor of this shape."""
        rows, columns = _matrix_shape(shape)
        return (rows + columns) * self.rank < rows * columns

    @method_on_class_too
    def rounds(self, tensor: torch.Tensor, state: State) -> Rounds:  # type: ignore[override]
        """Two rounds, or one if it does not pay. ``state`` holds "q", or the number of "steps" so far."""
        values = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        if not self.pays(tensor.shape):
            return (yield values)
        matrix = values.reshape(_matrix_shape(tensor.shape))
        q = self._first_q(matrix, state)
        p = orthonormal((yield matrix @ q))
        q = yield matrix.t() @ p
        if self.warm_start:
            state["q"] = q
        return product(p, q).reshape(tensor.shape)

    @method_on_class_too
    def misfit(self, shape: torch.Size, state: State) -> str:
        """Return why ``_first_q`` cannot continue, at least in part, from a checkpoint's state, or ""."""
        if "q" not in state or not (self.warm_start and self.pays(shape)):
            return ""
        last, needed = state["q"], (_matrix_shape(shape)[1], self.rank)
        if not isinstance(last, torch.Tensor) or last.shape != needed:
            shown = list(last.shape) if isinstance(last, torch.Tensor) else type(last).__name__
            return f"it is {shown}, and {list(needed)} is what this parameter needs"
        return "" if bool(torch.isfinite(last).all()) else "it is not finite"

    def _first_q(self, matrix: torch.Tensor, state: State) -> torch.Tensor:
        """Return the matrix to start with, of shape (columns, rank) and any scale, about 1.

        Columns that a step left as zeros, or not finite, could never recover: they start again.
        """
        steps = state.get("steps", 0)
        if self.warm_start or not isinstance(steps, int):
            steps = 0
        if not self.warm_start:
            state["steps"] = steps + 1
        generator = torch.Generator().manual_seed((self.seed + steps) % 2**63)
        shape = (matrix.shape[1], self.rank)
        # Drawn in host memory, so that ranks on CPU and any GPU start with the same numbers.
        fresh = torch.randn(shape, generator=generator, dtype=matrix.dtype)
        last = state.get("q")
        if not isinstance(last, torch.Tensor) or last.shape != shape:
            return fresh.to(matrix.device)
        # It may come from a checkpoint, or from before the model was moved.
        last, fresh = last.to(matrix.device), fresh.to(matrix.device)
        largest = last.abs().amax(0)
        is_usable = torch.isfinite(largest) & (largest > 0)
        return torch.where(is_usable, last.to(matrix.dtype) / largest, fresh)


def _matrix_shape(shape: torch.Size) -> tuple[int, int]:
    return shape[:1].numel(), shape[1:].numel()


def orthonormal(matrix: torch.Tensor) -> torch.Tensor:
    """Return orthonormal columns, shape (m, r), by modified Gram-Schmidt in float64.

    A column that depends on those before it becomes zeros, as its remainder is rounding error.
    """
    columns = matrix.to(torch.float64)
    largest = columns.abs().amax(0)
    columns = columns / torch.where(largest == 0, 1.0, largest)  # so that no square overflows or vanishes
    for i in range(columns.shape[1]):
        column, rest = columns[:, i : i + 1], columns[:, i + 1 :]
        length = _column_sums(column * column).sqrt()
        column.copy_(torch.where(length < NOTHING_LEFT, 0.0, column / length))
        rest.sub_(column * _column_sums(column * rest))
    return columns.to(matrix.dtype)


def _column_sums(matrix: torch.Tensor) -> torch.Tensor:
    """Sum shape (m, c) to (1, c): add halves to each other until one row is left."""
    while matrix.shape[0] > 1:
        half = (matrix.shape[0] + 1) // 2
        folded = matrix[:half].clone()
        folded[: matrix.shape[0] - half] += matrix[half:]
        matrix = folded
    return matrix


def product(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return ``p @ q.t()`` for (m, r) and (n, r): for each element r products, added in column order."""
    result = p.new_empty(p.shape[0], q.shape[0])
    rows = q.t().contiguous()
    chunk = CHUNK if p.device.type == "cpu" else GPU_CHUNK
    count = min(max(1, p.shape[0]), max(1, chunk // max(1, q.shape[0])))
    term = p.new_empty(count, q.shape[0])
    for begin in range(0, p.shape[0], count):
        left, part = p[begin : begin + count], result[begin : begin + count]
        scratch = term[: part.shape[0]]
        torch.mul(left[:, :1], rows[0], out=part)
        for k in range(1, p.shape[1]):
            part += torch.mul(left[:, k : k + 1], rows[k], out=scratch)
    return result
