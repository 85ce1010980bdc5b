"""Direct calls of TopK and PowerSGD: their selection and results, bit for bit, and refused input."""

# private: _reducer: whose memory it is, before it shows in a gradient

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mirrored_job import MirroredEngine
from refusals import refused

import horovod.torch as hvd
from horovod.common.sentences import Sentence
from horovod.torch import errors
from horovod.torch.compression import Compression, Compressor, resolved
from horovod.torch.compression import errors as compression_errors
from horovod.torch.compression.memory import Memory
from horovod.torch.compression.powersgd import orthonormal, product
from horovod.torch.compression.topk import TopKCompressor, _index_dtype

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
NAN, INF = float("nan"), float("inf")

topk, powersgd = Compression.topk, Compression.powersgd


def sent(tensor: torch.Tensor, k: int) -> torch.Tensor:
    return topk.decompress(*topk(k=k).compress(tensor))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 1e-40, INF, -INF, NAN])), st.integers(1, 9))
def test_the_largest_are_sent_and_of_equal_ones_the_first(numbers: list[float], k: int) -> None:
    order = sorted(
        range(len(numbers)), key=lambda i: (-(math.inf if math.isnan(numbers[i]) else abs(numbers[i])),
                                            not math.isnan(numbers[i]), i),
    )  # fmt: skip
    want = np.zeros(len(numbers), np.float32)
    for i in order[:k]:
        want[i] = numbers[i]
    result = sent(torch.tensor(numbers), k).numpy()
    assert np.array_equal(result, want, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 0), (5, 6, 7)], ids=str)
def test_codes_are_values_and_places(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape, dtype=torch.float64).to(dtype)
    count = tensor.numel()
    compressor = topk(k=4)
    codes, ctx = compressor.compress(tensor)
    k, each = min(4, count), 12 if dtype == torch.float64 else 8
    assert codes.dtype == torch.uint8 and codes.shape == (k * each,)
    values = np.frombuffer(codes[: k * (each - 4)].numpy().tobytes(), f"<f{each - 4}")
    places = np.frombuffer(codes[k * (each - 4) :].numpy().tobytes(), "<i4")
    assert list(places) == sorted(set(places))
    assert np.array_equal(values, tensor.reshape(-1).double().numpy()[places].astype(values.dtype))
    restored = compressor.decompress(codes, ctx)
    assert restored.dtype == dtype and restored.shape == shape
    assert torch.equal(restored.reshape(-1)[places.tolist()], tensor.reshape(-1)[places.tolist()])
    assert torch.count_nonzero(restored) <= k
    assert torch.equal(topk(ratio=1.0).decompress(*topk(ratio=1.0).compress(tensor)), tensor)


def test_how_many_are_kept() -> None:
    assert [topk.default().kept(n) for n in (0, 1, 99, 100, 101, 1000)] == [0, 1, 1, 1, 2, 10]
    assert [topk(k=5).kept(n) for n in (0, 3, 5, 600)] == [0, 3, 5, 5]
    assert _index_dtype(2**31) == torch.int32 and _index_dtype(2**31 + 1) == torch.int64
    integers = torch.arange(10)
    assert topk.compress(integers) == (integers, None) and topk.decompress(integers, None) is integers
    view = torch.arange(12.0).reshape(3, 4).t()
    assert torch.equal(sent(view, 1), sent(view.contiguous(), 1))


@pytest.mark.parametrize(
    ("codes", "row"),
    [
        *[(torch.zeros(count, dtype=torch.uint8), compression_errors.no_topk_codes) for count in (9, 8 * 4)],
        (torch.zeros(8), compression_errors.no_topk_codes),
        *[
            (torch.tensor([0, 0, 0, 0, *place], dtype=torch.uint8), compression_errors.position_outside)
            for place in ([3, 0, 0, 0], [255, 255, 255, 255])
        ],
    ],
)
def test_damaged_codes_are_refused(codes: torch.Tensor, row: Sentence) -> None:
    with refused(row):
        topk.decompress(codes, (torch.float32, torch.Size([3])))


def test_what_they_say_of_themselves() -> None:
    assert topk.combine == "gather" and powersgd.combine == "rounds" and topk.codec is powersgd.codec is None
    assert topk.error_feedback is powersgd.error_feedback is True
    assert not Compression.bit8.error_feedback and not Compression.none.error_feedback
    assert topk.min_elements == powersgd.min_elements == 1024
    assert isinstance(resolved(topk), TopKCompressor) and resolved(topk) is resolved(topk)
    with refused(compression_errors.lacks_method):
        powersgd.compress(torch.ones(3))
    with refused(compression_errors.no_compressor, method="rounds"):
        resolved(type("Silent", (), {"combine": "rounds"}))


def run(compressor: Any, parts: list[torch.Tensor], states: list[dict[str, Any]]) -> list[torch.Tensor]:
    """Run the rounds of all ranks in this process."""
    ranks = [compressor.rounds(part, state) for part, state in zip(parts, states, strict=True)]
    yielded, results = [next(rounds) for rounds in ranks], []
    while not results:
        total = torch.stack(yielded).sum(0)
        try:
            yielded = [rounds.send(total) for rounds in ranks]
        except StopIteration as stop:
            results.append(stop.value)
    for rounds in ranks[1:]:
        with pytest.raises(StopIteration) as end:
            rounds.send(total)
        results.append(end.value.value)
    return results


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3), st.lists(st.integers(1, 12), min_size=0, max_size=3), st.integers(1, 4),
    st.sampled_from(FLOATS), st.integers(-120, 120),
)  # fmt: skip
def test_powersgd_projects_any_shape(
    ranks: int, shape: list[int], rank: int, dtype: torch.dtype, exponent: int
) -> None:
    """The result is orthogonal to the error: a part of the sum is missing, the rest is correct."""
    if dtype == torch.float16:
        exponent = exponent // 20
    generator = torch.Generator().manual_seed(rank)
    parts = [
        (torch.randn(shape, generator=generator, dtype=torch.float64) * 2.0**exponent).to(dtype)
        for _ in range(ranks)
    ]
    compressor, states = powersgd(rank=rank), [{} for _ in parts]
    for _ in range(2):
        results = run(compressor, parts, states)
    assert all(result.equal(results[0]) and result.shape == torch.Size(shape) for result in results)
    want, result = sum(part.double() for part in parts), results[0].double()
    size = float(want.abs().max()) + 1e-300
    if not compressor.pays(torch.Size(shape)):
        assert (result - want).abs().max() <= 1e-6 * size and not any("q" in state for state in states)
        return
    want, result = (each.reshape(shape[0], -1) / size for each in (want, result))
    assert (result.t() @ (want - result)).abs().max() <= 1e-5 * want.numel()
    assert (want - result).norm() <= want.norm() * (1 + 1e-6)


@pytest.mark.parametrize(
    ("shape", "largest"),
    [((), 0), ((9,), 0), ((0, 9), 0), ((9, 0), 0), ((1, 9), 0), ((2, 2), 0), ((3, 3), 1), ((12, 2, 2, 3), 5)],
)
def test_powersgd_pays_with_ranks_up_to(shape: tuple[int, ...], largest: int) -> None:
    """(12 + 12) * 6 numbers equal the 144 of a 12 x 12 matrix."""
    assert [rank for rank in range(1, 9) if powersgd(rank=rank).pays(torch.Size(shape))] == list(
        range(1, largest + 1)
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 1000), st.integers(-100, 100))
def test_columns_become_orthonormal(rows: int, columns: int, seed: int, exponent: int) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 2.0**exponent
    result = orthonormal(matrix)
    assert result.dtype == matrix.dtype
    width = min(rows, columns)
    gram = (result.double().t() @ result.double())[:width, :width]
    if rows >= 2 * columns:  # well-conditioned; a dependent column has no direction
        assert (gram - torch.eye(width)).abs().max() < 1e-5
    assert torch.equal(orthonormal(torch.zeros(rows, columns)), torch.zeros(rows, columns))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(1, 5), st.integers(0, 4), st.integers(0, 1000), st.booleans())
def test_columns_that_depend_on_others_vanish(
    rows: int, columns: int, inner: int, seed: int, is_first_repeated: bool
) -> None:
    """Whole numbers make the dependence exact: a rounding error must not become a direction."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.randint(-9, 10, (rows, inner), generator=generator).float()
    matrix = left @ torch.randint(-9, 10, (inner, columns), generator=generator).float()
    if is_first_repeated:
        matrix[:] = matrix[:, :1]
    result = orthonormal(matrix).double()
    gram = result.t() @ result
    assert (gram - torch.diag(gram.diagonal().round())).abs().max() < 1e-5
    assert int(gram.diagonal().round().sum()) == int(torch.linalg.matrix_rank(matrix.double()))
    assert (result @ (result.t() @ matrix.double()) - matrix).abs().max() <= 1e-4 * (1 + matrix.abs().max())


def test_what_ranks_share_is_made_of_single_operations() -> None:
    """The same bits as scalar additions and multiplications, which are equal on all processors."""
    p, q = torch.randn(7, 3), torch.randn(5, 3)
    want = np.zeros((7, 5), np.float32)
    for i, j in itertools.product(range(7), range(5)):
        total = p[i, 0].numpy() * q[j, 0].numpy()
        for k in (1, 2):
            total = np.float32(total + np.float32(p[i, k].numpy() * q[j, k].numpy()))
        want[i, j] = total
    assert np.array_equal(product(p, q).numpy(), want)
    wide = torch.randn(3, 2), torch.randn(70_000, 2)  # more than a chunk in a row
    assert torch.allclose(product(*wide), wide[0] @ wide[1].t(), atol=1e-5)
    tall = torch.randn(70_000, 2), torch.randn(3, 2)
    assert torch.allclose(product(*tall), tall[0] @ tall[1].t(), atol=1e-5)


def test_the_state_of_a_name() -> None:
    memory, first, second = Memory(), powersgd(rank=1), powersgd(rank=1)
    assert memory.state_dict() == {}
    state = memory.of("fc", first)
    parts = [torch.randn(20, 30)]
    run(first, parts, [state])
    memory.of("bias", first)
    saved = memory.state_dict()
    assert list(saved) == ["fc"] and list(saved["fc"]) == ["q"] and saved["fc"]["q"].shape == (30, 1)

    restored = Memory()
    restored.load_state_dict(saved)
    again = run(second, parts, [restored.of("fc", second)])
    assert torch.equal(again[0], run(first, parts, [memory.of("fc", first)])[0])
    assert restored.of("fc", first) == {}, "another compressor begins anew"
    wrong = {"q": torch.ones(3, 3)}
    assert run(first, parts, [wrong])[0].shape == (20, 30) and wrong["q"].shape == (30, 1)

    cold = powersgd(warm_start=False, rank=1)
    state = {}
    results = [run(cold, parts, [state])[0] for _ in range(2)]
    assert state == {"steps": 2} and not torch.equal(*results)
    assert torch.equal(results[0], run(powersgd(warm_start=False, rank=1), parts, [{}])[0])


def test_requests_of_rounds(engine: MirroredEngine) -> None:
    x = torch.randn(40, 50)
    result = hvd.allreduce(x, name="x", op=hvd.Sum, compression=powersgd)
    assert engine.names() == ["allreduce.x", "allreduce.x.round1"]
    assert [request.tensors[0].shape for request in engine.requests] == [[40, 4], [50, 4]]
    assert result.shape == (40, 50)
    handle = hvd.allreduce_async(x, name="y", compression=powersgd)
    assert engine.names()[2:] == ["allreduce.y"], "further rounds when somebody asks"
    while not hvd.poll(handle):
        time.sleep(0.001)
    assert engine.names()[2:] == ["allreduce.y", "allreduce.y.round1"]
    engine.failures["allreduce.z.round1"] = hvd.HorovodInternalError("rank 1 is gone")
    with pytest.raises(hvd.HorovodInternalError, match="rank 1 is gone"):
        hvd.allreduce(x, name="z", compression=powersgd)
    del engine.requests[:]
    hvd.allreduce(x, name="k", compression=topk(k=3))
    assert engine.requests[0].operation == "allgather" and engine.names() == ["allreduce.k"]
    with refused(errors.scattered_by_python):
        hvd.reducescatter(x, compression=powersgd)


def test_an_optimizer_keeps_its_own_states(engine: MirroredEngine) -> None:
    model = torch.nn.Linear(50, 40)
    optimizers = []
    for _ in range(2):
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizers.append(hvd.DistributedOptimizer(plain, model.named_parameters(), compression=powersgd))
    model(torch.randn(3, 50)).square().sum().backward()
    optimizers[1].step()
    memory = optimizers[1]._reducer.memory.state_dict()
    assert list(memory) == ["weight"] and memory["weight"]["q"].shape == (50, 4)
    assert optimizers[0]._reducer.memory.state_dict() == {}


def test_a_base_without_methods_says_what_it_needs() -> None:
    with refused(compression_errors.lacks_rounds):
        Compressor.rounds(torch.ones(3), {})
