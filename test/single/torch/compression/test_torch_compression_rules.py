"""How each gradient is compressed: rules by name, as text, and in the environment if a script sets none."""

# private: _reducer: has the rules of a copy

import copy
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from mirrored_job import MirroredEngine
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.common.compressors import COMPRESSORS
from horovod.torch import compression as face
from horovod.torch import errors as torch_errors
from horovod.torch.compression import UNSET, Compressor, NoneCompressor, Rules, errors, short_name
from horovod.torch.reduce_ops import OP_NAMES

VARIABLE = "HOROVOD_COMPRESSION"
WEIGHTS = ("embed.weight", "fc.0.weight", "fc.1.weight")


@pytest.fixture(autouse=True)
def said_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


class Half(Compressor):
    """A user's own, with an option."""

    def __init__(self, factor: float = 0.5, name: str = "") -> None:
        self.factor, self.name = factor, name

    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor.half(), tensor.dtype

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class NeedsFactor(Half):
    def __init__(self, factor: float) -> None:
        super().__init__(factor)


@pytest.fixture
def own() -> Iterator[None]:
    hvd.Compression.register("half", Half)
    hvd.Compression.register("ready", Half(0.25))
    yield
    for name in ("half", "ready"):
        delattr(hvd.Compression, name)


def make_model() -> nn.ModuleDict:
    linear = [nn.Linear(40, 40), nn.Linear(40, 40)]
    return nn.ModuleDict({"embed": nn.Embedding(60, 40), "fc": nn.Sequential(*linear)})


def optimizer_of(model: nn.Module, **options: Any) -> Any:
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(plain, model.named_parameters(), **options)


def codecs(engine: MirroredEngine, **options: Any) -> dict[str, str | None]:
    """The codec in the request of each parameter's gradient."""
    del engine.requests[:]
    optimizer_of(make_model(), **options).synchronize()
    of_gradients = engine.of_gradients()
    # Names of a later model have a suffix.
    return {re.sub(r"^allreduce\.|#\d+$", "", one.name): one.codec for one in of_gradients}


@pytest.mark.parametrize("text", ["BIT8", "Bit8:block_size=64"])
def test_names_in_upper_case_are_the_same(text: str) -> None:
    assert repr(hvd.Compression.from_text(text)) == repr(hvd.Compression.from_text(text.lower()))
    assert hvd.Compression.from_text("BIT8") is hvd.Compression.from_text("bit8")


def test_what_is_known_of_compressors_without_torch_is_right() -> None:
    for name, options in COMPRESSORS.items():
        assert set(inspect.signature(getattr(hvd.Compression, name)).parameters) == set(options), name
    built_in = {name for name, value in vars(hvd.Compression).items() if isinstance(value, type)}
    assert set(COMPRESSORS) == built_in


def test_the_first_rule_that_matches_counts(engine: MirroredEngine) -> None:
    bit16 = hvd.Compression.bit16
    rules = {"embed.*": hvd.Compression.none, "fc.[1-9].*": "bit8:block_size=32", "fc.*": bit16}
    used = codecs(engine, compression=rules)
    assert [used[name] for name in WEIGHTS] == [None, "bit16", "bit8/32"]
    assert used["fc.0.bias"] is used["fc.1.bias"] is None, "vectors: the compressor's policy"
    used = codecs(engine, compression={"fc.*": hvd.Compression.bit8(min_elements=None)})
    assert [used[name] for name in WEIGHTS] == [None, "bit8/128", "bit8/128"], "without a rule: exactly"
    assert used["fc.0.bias"] == "bit8/128", "min_elements=None compresses vectors too"
    used = codecs(engine, compression={"*.bias": "none", "*": "bit8:min_elements=1601"})
    assert [used[name] for name in WEIGHTS] == ["bit8/128", None, None]


def test_a_parameter_added_later_has_a_rule_too(engine: MirroredEngine) -> None:
    model = make_model()
    optimizer = optimizer_of(model, compression={"embed*": "bit16", "fc.*": "none", "*": "bit8"})
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(50, 50))]})
    optimizer.synchronize()
    assert {r.name: r.codec for r in engine.requests if r.codec} == {
        "allreduce.embed.weight": "bit16", "allreduce.allreduce.noname.1.0": "bit8/128",
    }  # fmt: skip


def test_groups_are_split_by_compressor(engine: MirroredEngine) -> None:
    model = make_model()
    rules = {"embed.*": "bit16", "fc.*.weight": hvd.Compression.bit8}
    groups = [list(model.parameters())]
    optimizer = optimizer_of(model, compression=rules, groups=groups)
    optimizer.synchronize()
    assert {r.name: (r.codec, len(r.tensors)) for r in engine.requests} == {
        "allreduce.group.embed.weight": ("bit16", 1), "allreduce.group.fc.0.weight": ("bit8/128", 2),
        "allreduce.group.fc.0.bias": (None, 2),
    }  # fmt: skip
    assert copy.deepcopy(optimizer)._reducer.rules.compressor_for("embed.weight").codec.name == "bit16"


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product, hvd.Adasum])
def test_ops_that_do_not_add(op: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Feeding(Half):
        error_feedback = True

    for compression, row, name in [
        ({"fc.*": "none", "*": "bit8"}, torch_errors.codes_op, "bit8"),
        ("topk", torch_errors.codes_op, "topk"),
        ("powersgd:rank=1", torch_errors.codes_op, "powersgd:rank=1"),
        (Feeding(), torch_errors.feedback_op, "Feeding"),
    ]:
        with refused(row, compressor=name, op=OP_NAMES[op]):
            optimizer_of(make_model(), compression=compression, op=op)
    monkeypatch.setenv(VARIABLE, "bit8")
    with refused(torch_errors.codes_op, said="HOROVOD_COMPRESSION=bit8"):
        optimizer_of(make_model(), op=op)


def test_scripts_that_say_nothing(engine: MirroredEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(codecs(engine).values()) == {None}
    known = {"bit8": "bit8/128", " bit8:block_size = 64 ": "bit8/64", "none": None, "": None}
    for text, codec in known.items():
        monkeypatch.setenv(VARIABLE, text)
        assert [codecs(engine)[name] for name in WEIGHTS] == [codec] * 3
    monkeypatch.setenv(VARIABLE, "bit8")
    del engine.requests[:]
    hvd.allreduce(torch.ones(2000), name="metric")
    assert engine.requests[0].codec is None, "an explicit allreduce may be of anything: it stays exact"
    for text in ("bit9", "bit8:format=e2m5", "int4:rotation"):
        monkeypatch.setenv(VARIABLE, text)
        with refused(errors.wrong_text, said=f"HOROVOD_COMPRESSION={text}"):
            optimizer_of(make_model())


def test_the_default_reads_as_none() -> None:
    assert repr(UNSET) == "none" and isinstance(UNSET, NoneCompressor)
    assert Rules(UNSET).compressor_for("any") is hvd.Compression.none


def test_registered_names(own: None, engine: MirroredEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hvd.Compression.half is Half
    half = hvd.Compression.from_text("half:factor=2,name=mine")
    assert isinstance(half, Half) and (half.factor, half.name) == (2, "mine")
    assert hvd.Compression.from_text("ready") is hvd.Compression.ready
    with refused(errors.wrong_text, because="takes_no_options"):
        hvd.Compression.from_text("ready:factor=1")
    monkeypatch.setenv(VARIABLE, "half:factor=1")
    optimizer_of(make_model()).synchronize()
    assert {request.tensors[0].dtype for request in engine.requests} == {5}, "float16"
    replacement = Half()
    hvd.Compression.register("half", replacement)
    assert hvd.Compression.half is replacement


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("bit8", hvd.Compression.bit8()),
        ("bit8:format=e5m2,block_size=32,rounding=stochastic,seed=7,error_feedback=1,min_elements=none",
         hvd.Compression.bit8(format="e5m2", block_size=32, rounding="stochastic", seed=7,
                              error_feedback=True, min_elements=None)),
        ("int8:block_size=256", hvd.Compression.int8(block_size=256)),
        ("int4:rotation=hadamard,levels=lloyd,error_feedback=true",
         hvd.Compression.int4(rotation="hadamard", levels="lloyd", error_feedback=True)),
        ("int4:rotation=none", hvd.Compression.int4()),
        ("topk:ratio=0.1,error_feedback=0", hvd.Compression.topk(ratio=0.1, error_feedback=False)),
        ("topk:k=10", hvd.Compression.topk(k=10)),
        ("topk:ratio=1", hvd.Compression.topk(ratio=1)),
        ("powersgd:rank=2,warm_start=false,seed=5",
         hvd.Compression.powersgd(rank=2, warm_start=False, seed=5)),
        ("bit16:min_elements=0", hvd.Compression.bit16(min_elements=0)),
    ],
)  # fmt: skip
def test_text_says_what_python_says(text: str, same: Any) -> None:
    compressor = hvd.Compression.from_text(text)
    assert type(compressor) is type(same) and vars(compressor) == vars(same)
    assert repr(compressor) == repr(same)
    again = eval(repr(same), vars(hvd.compression))
    assert vars(again) == vars(same)
    written = hvd.Compression.from_text(short_name(same))
    assert type(written) is type(same) and vars(written) == vars(same)


def test_compressors_read_as_scripts_write_them(own: None) -> None:
    assert repr(hvd.Compression.bit8) == "Compression.bit8"
    assert repr(hvd.Compression.none) == "Compression.none"
    assert repr(hvd.Compression.bit8(block_size=32)) == "Compression.bit8(block_size=32)"
    assert repr(hvd.Compression.none()) == "Compression.none()"

    class Wide(hvd.compression.Bit8Compressor):
        """A user's subclass, which differs from its base class."""

    assert "Wide" in repr(Wide) and repr(Wide(seed=3)) == "Wide(seed=3)" and short_name(Wide) == "Wide"
    assert "Half" in repr(Half) and short_name(Half()) == "Half"
    assert str(Rules("bit8")) == "bit8"
    assert str(Rules({"fc.*": "int4:seed=1", "*": Half})) == "fc.*: int4:seed=1, *: Half"
    for row, value in ((errors.wrong_text, "bit9"), (errors.no_compressor, 3)):
        with refused(row, said=f"compression={value!r}") as caught:
            Rules(value)
        assert str(caught.value).count("compression") == 1
    with refused(errors.wrong_text, said="compression={'*': 'bit9'}", name="bit9"):
        Rules({"fc.*": "bit8", "*": "bit9"})


def test_a_class_of_ones_own_stands_for_its_default_instance(own: None) -> None:
    made = hvd.Compression.from_text("half")
    assert isinstance(made, Half) and made.factor == 0.5
    assert made is hvd.Compression.from_text("half"), "what it remembers belongs to one instance"
    with refused(errors.needs_arguments, said=f"compression={NeedsFactor!r}"):
        hvd.Compression.register("needs_factor", NeedsFactor)


def test_the_older_name_of_unset() -> None:
    with pytest.warns(DeprecationWarning, match="use UNSET"):
        assert face.UNSAID is UNSET
    assert not hasattr(face, "UNSAYD")
