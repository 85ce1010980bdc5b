"""hvd.elastic with workers as threads: workers leave and join at chosen points, and training continues.

The survivors' result is compared, bit for bit, with a job that no worker left and that started from the
commit to which they went back.
"""

# private: _alive, _commits, _go_back, _reducer: worlds are threads here, which die without a process

from __future__ import annotations

import copy
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from elastic_threads import PATIENCE, Launcher, Lost, together
from refusals import refused

import horovod.torch as hvd
from horovod.common import errors as of_common
from horovod.common import rejoining
from horovod.common.elastic import ADDED
from horovod.torch import errors
from horovod.torch.elastic import state as handlers

STEPS = 12


@pytest.fixture(autouse=True)
def elastic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    monkeypatch.setenv("HOROVOD_DETERMINISTIC", "1")


class Trainer:
    """One worker's script: a model of two layers, Adam and a scheduler, for some steps.

    ``act(point, trainer)`` is called at each point of a step, and may raise Lost.
    """

    def __init__(self, name: str, act: Callable[[str, Trainer], None], start: Any = None, **options: Any):
        self.name, self.act = name, act
        generator = torch.Generator().manual_seed(len(name))  # differs by rank: it must be synchronised
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
        for parameter in self.model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)
        plain = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.optimizer = hvd.DistributedOptimizer(plain, self.model.named_parameters(), **options)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.state = hvd.elastic.TorchState(
            model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, step=0
        )
        self.starts: list[tuple[int, Any]] = []  # (size, state) when the function was called
        if start is not None:
            self.load(start)

    def content(self) -> Any:
        optimizer = {name: part for name, part in self.optimizer.state_dict().items() if name != "horovod"}
        return copy.deepcopy(
            (self.model.state_dict(), optimizer, self.scheduler.state_dict(), self.state.step)
        )

    def load(self, content: Any) -> None:
        model, optimizer, scheduler, step = copy.deepcopy(content)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
        self.scheduler.load_state_dict(scheduler)
        self.state.step = step
        self.state.save()

    def train(self) -> Any:
        return hvd.elastic.run(self._train)(self.state)

    def _train(self, state: Any) -> Any:
        self.starts.append((hvd.size(), self.content()))
        while state.step < STEPS:
            self.act("begin", self)
            inputs = torch.randn(3, 6, generator=torch.Generator().manual_seed(100 * state.step + hvd.rank()))
            self.optimizer.zero_grad()
            loss = self.model(inputs).pow(2).mean()
            self.act("backward", self)
            loss.backward()
            self.act("step", self)
            self.optimizer.step()
            self.scheduler.step()
            state.step += 1
            state.save()
            self.act("commit", self)
            state.check_host_updates()
        return self.starts, self.content()


def of_tensors(content: Any) -> list[torch.Tensor]:
    if isinstance(content, torch.Tensor):
        return [content]
    if isinstance(content, dict):
        content = list(content.values())
    parts = content if isinstance(content, list | tuple) else []
    return [each for part in parts for each in of_tensors(part)]


def assert_identical(one: Any, other: Any) -> None:
    ours, theirs = of_tensors(one), of_tensors(other)
    assert len(ours) == len(theirs) > 8
    for mine, yours in zip(ours, theirs, strict=True):
        assert torch.equal(mine, yours)
    assert one[3] == other[3] and one[2]["last_epoch"] == other[2]["last_epoch"]


def undisturbed(size: int, start: Any) -> Any:
    """The final state of a job of `size` workers from a given state; equal on all workers."""
    results = together([f"u{i}" for i in range(size)], lambda name: Trainer(name, no_act, start).train())
    ends = [content for _, content in results.values()]
    for other in ends[1:]:
        assert_identical(ends[0], other)
    return ends[0]


def no_act(point: str, trainer: Trainer) -> None:
    return None


def lose(victims: dict[str, tuple[str, int]]) -> Callable[[str, Trainer], None]:
    """Victim -> (point, step) at which it is lost."""

    def act(point: str, trainer: Trainer) -> None:
        if victims.get(trainer.name) == (point, trainer.state.step):
            raise Lost

    return act


POINTS = [("begin", 4), ("backward", 4), ("step", 4), ("commit", 5)]
LOST = [{victim: point} for point in POINTS for victim in "ab"]
LOST.append({"a": ("backward", 3), "c": ("backward", 3)})  # two at once


@pytest.mark.parametrize("over", ["local", "tcp"])
@pytest.mark.parametrize("victims", LOST, ids=str)
def test_survivors_go_on_as_if_nobody_had_been_lost(over: str, victims: dict[str, tuple[str, int]]) -> None:
    names = list("abc" if len(victims) == 1 else "abcd")
    launcher = Launcher(over)
    launcher.start(names, lambda name: Trainer(name, lose(victims)).train())
    results = launcher.wait()
    rest = [name for name in names if name not in victims]
    assert launcher.worlds[0] == names and launcher.worlds[-1] == sorted(results) == rest
    (starts, end), (_, others_end) = (results[name] for name in rest)
    assert_identical(end, others_end)
    if len(victims) == 1:
        assert [size for size, _ in starts] == [3, 2] and starts[1][1][3] in (4, 5)
    if over == "local":  # over TCP each thread is a separate host
        assert_identical(end, undisturbed(2, starts[-1][1]))


def test_down_to_one_and_up_again() -> None:
    """The optimizer of a worker that has been alone continues with others."""
    launcher = Launcher()
    came = threading.Event()

    def act(point: str, trainer: Trainer) -> None:
        lose({"b": ("step", 2), "c": ("backward", 3)})(point, trainer)
        if point == "begin" and trainer.name == "a" and trainer.state.step == 5 and not came.is_set():
            came.set()
            launcher.start(["new"], lambda name: Trainer(name, act).train())
            trainer.state.on_hosts_updated(1.0, ADDED)

    launcher.start(["a", "b", "c"], lambda name: Trainer(name, act).train())
    results = launcher.wait()
    assert launcher.worlds == [["a", "b", "c"], ["a", "c"], ["a"], ["a", "new"]]
    (starts, end), (new_starts, new_end) = results["a"], results["new"]
    assert_identical(end, new_end)
    assert [size for size, _ in starts] == [3, 2, 1, 2] and starts[-1][1][3] == 6
    assert_identical(starts[-1][1], new_starts[0][1])
    assert_identical(end, undisturbed(2, starts[-1][1]))


def test_one_is_a_commit_ahead() -> None:
    """Rank 0 saves and detects the loss before the others save: all go back to the previous commit."""
    launcher = Launcher()
    waiting = threading.Barrier(2, timeout=PATIENCE)

    def act(point: str, trainer: Trainer) -> None:
        here = (point, trainer.state.step, trainer.name)
        if here == ("commit", 5, "b") and hvd.size() == 3:
            commits = trainer.state._commits
            commits.forget_after(commits.newest - 1)  # it did not come to save()
            waiting.wait()
        if here == ("commit", 5, "c"):
            waiting.wait()
            raise Lost

    launcher.start(["a", "b", "c"], lambda name: Trainer(name, act).train())
    results = launcher.wait()
    starts, end = results["a"]
    assert starts[1][1][3] == 4 and starts[1][0] == 2
    assert_identical(starts[1][1], results["b"][0][1][1])
    assert_identical(end, results["b"][1])
    assert_identical(end, undisturbed(2, starts[1][1]))


@pytest.mark.parametrize("where", ["leave", "init", "agree", "sync"])
def test_a_death_in_anothers_reset(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """c is lost in a step; then b, while the others join the world without c."""
    launcher = Launcher()
    resets = Counter[str]()

    def dies_at(point: str) -> None:
        name = threading.current_thread().name
        if name == "b" and point == where and "c" not in launcher._alive and not resets[point]:
            resets[point] += 1
            raise Lost

    for owner, attribute, point in (
        (rejoining, "leave", "leave"), (rejoining, "rejoin", "init"),
        (hvd.elastic.TorchState, "_agree", "agree"), (hvd.elastic.TorchState, "_receive", "sync"),
    ):  # fmt: skip
        plain = getattr(owner, attribute)

        def dying(*args: Any, plain: Any = plain, point: str = point) -> Any:
            dies_at(point)
            return plain(*args)

        monkeypatch.setattr(owner, attribute, dying)
    launcher.start(["a", "b", "c", "d"], lambda name: Trainer(name, lose({"c": ("step", 4)})).train())
    results = launcher.wait()
    assert sorted(results) == ["a", "d"] and launcher.worlds[-1] == ["a", "d"]
    starts, end = results["a"]
    assert_identical(end, results["d"][1])
    assert starts[-1][1][3] in (4, 5)
    assert_identical(end, undisturbed(2, starts[-1][1]))


def test_a_reset_callback_changes_what_counts() -> None:
    def work(name: str) -> list[float]:
        trainer = Trainer(name, lose({"b": ("step", 3)}))

        def halve() -> None:
            trainer.optimizer.param_groups[0]["lr"] = hvd.size() * 0.01

        trainer.state.register_reset_callbacks([halve])
        starts, _ = trainer.train()
        return [optimizer["param_groups"][0]["lr"] for _, (_, optimizer, _, _) in starts]

    assert {name: rates[1:] for name, rates in together("abc", work).items()} == {"a": [0.02], "c": [0.02]}


# ---- what else belongs to a training ----


def trained_with(compression: Any, caplog: pytest.LogCaptureFixture) -> tuple[Any, list[str]]:
    def act(point: str, trainer: Trainer) -> None:
        reducer = trainer.optimizer._reducer  # type: ignore[attr-defined]
        if point == "begin":
            trainer_sees.append((trainer.name, hvd.size(), trainer.state.step, bool(reducer.residuals)))
        lose({"b": ("step", 4)})(point, trainer)

    trainer_sees: list[Any] = []
    with caplog.at_level(logging.WARNING, "horovod"):
        results = together("abc", lambda name: Trainer(name, act, compression=compression).train())
    assert_identical(results["a"][1], results["c"][1])
    return trainer_sees, [record.getMessage() for record in caplog.records]


def test_residuals_are_dropped_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    bit8 = hvd.Compression.bit8(error_feedback=True, min_elements=1)
    seen, said = trained_with(bit8, caplog)
    assert {has for name, size, step, has in seen if size == 3 and step > 0} == {True}
    after = [(step, has) for name, size, step, has in seen if size == 2]
    assert {has for step, has in after if step == min(after)[0]} == {False}
    assert sum("error feedback begins anew" in line for line in said) == 1


def test_what_compressors_remember_is_everybodys(caplog: pytest.LogCaptureFixture) -> None:
    trained_with(hvd.Compression.powersgd(rank=1, min_elements=1), caplog)


def test_events_are_said_in_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    _, said = trained_with(hvd.Compression.none, caplog)
    assert sum("goes back to its last commit, as this failed" in line for line in said) == 2
    on = [line for line in said if "goes on as rank" in line]
    assert len(on) == 2
    assert all("of 2, commit" in line and "left in" in line and "met in" in line for line in on)


def test_process_sets_are_made_again_where_their_ranks_exist(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")

    def work(name: str) -> Any:
        stays, goes = hvd.add_process_set([0, 1]), hvd.add_process_set([1, 3])
        model = torch.nn.Linear(2, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), process_set=stays)

        def train(state: Any) -> Any:
            hvd.barrier()
            if name == "b":
                raise Lost
            hvd.barrier()
            assert hvd.size() == 3 and stays.size() == 2 and stays.included() == (hvd.rank() < 2)
            with refused(of_common.not_registered, ranks=(hvd.rank(),)):
                hvd.allreduce(torch.ones(1), process_set=goes)
            same = hvd.add_process_set([0, 1])  # as in a function that begins again
            assert same.process_set_id == stays.process_set_id
            with refused(of_common.exists_already, members=[0, 1]):
                hvd.add_process_set([0, 1])
            model(torch.full((1, 2), float(hvd.rank() + 1))).sum().backward()
            optimizer.synchronize()
            hvd.barrier()  # the first to end leaves the others
            return hvd.rank(), float(model.weight.grad[0, 0])  # type: ignore[index]

        return hvd.elastic.run(train)(hvd.elastic.TorchState(model=model, step=0))

    with caplog.at_level(logging.WARNING, "horovod"):
        assert together("abcd", work) == {"a": (0, 1.5), "c": (1, 1.5), "d": (2, 3.0)}
    said = [record.getMessage() for record in caplog.records if "not made again" in record.getMessage()]
    assert len(said) == 1 and "process set of ranks [1, 3] is not made again: the job has 3 ranks" in said[0]


@pytest.mark.parametrize("lost", [["b"], ["b", "c"]], ids=["they fit", "one does not"])
def test_process_sets_given_to_init_are_given_again(lost: list[str]) -> None:
    """If a set does not fit, all ranks raise an error that names it; no rank continues without it."""

    def work(name: str) -> Any:
        hvd.shutdown()
        given = hvd.ProcessSet([0, 2])
        hvd.init(process_sets=[given])

        def train(state: Any) -> Any:
            hvd.barrier()
            if name in lost:
                raise Lost
            hvd.barrier()
            total = given.included() and float(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=given))
            hvd.barrier()  # the first to end leaves the others
            return total

        try:
            return hvd.elastic.run(train)(hvd.elastic.TorchState(step=0))
        except ValueError as error:
            return str(error)

    results = together("abcd", work)
    if len(lost) == 1:
        assert results == {"a": 2.0, "c": False, "d": 2.0}
    else:
        assert set(results.values()) == {"process set of ranks [0, 2]: this job has ranks 0 to 1"}


@pytest.mark.parametrize("seed", range(3))
def test_a_sampler_accounts_for_every_sample(seed: int) -> None:
    """With failures and newcomers at random steps, each sample is used once, except for padding."""
    count, batch = 97, 3
    rng = random.Random(seed)
    launcher = Launcher()
    victims = {"b": rng.randrange(1, 6), "c": rng.randrange(1, 6)}
    comes = rng.randrange(2, 6)
    started = threading.Event()

    def work(name: str) -> Any:
        sampler = hvd.elastic.ElasticSampler(range(count), seed=1)
        state = hvd.elastic.TorchState(sampler=sampler, done=[], step=0)

        def train(state: Any) -> Any:
            samples: Any = torch.arange(count)
            loader = torch.utils.data.DataLoader(samples, batch_size=batch, sampler=state.sampler)
            for number, values in enumerate(loader):
                if victims.get(name) == state.step:
                    raise Lost
                everybodys = hvd.allgather_object(values.tolist())
                state.sampler.record_batch(number, batch)
                state.done = state.done + [one for each in everybodys for one in each]
                state.step += 1
                if name == "a" and state.step == comes and not started.is_set():
                    started.set()
                    launcher.start(["d"], work)
                    state.on_hosts_updated(1.0, ADDED)
                state.commit()
            return state.done

        return hvd.elastic.run(train)(state)

    launcher.start(["a", "b", "c"], work)
    results = launcher.wait()
    assert sorted(results) == ["a", "d"]
    done = Counter(results["a"])
    assert set(done) == set(range(count)) and done.total() <= count + 2 * len(launcher.worlds)
    assert results["a"] == results["d"]


# ---- handlers ----


def test_a_scaler_and_other_things_with_a_state_dict(alone: None) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, scaler=scaler, loss=torch.ones(1))
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    scaler.unscale_(optimizer)  # and then a rank is lost
    scaler._scale = torch.tensor(8.0)
    state.restore()
    assert scaler.get_scale() == 4.0
    scaler.unscale_(optimizer)  # torch refuses a second one in a step
    scaler.step(optimizer)
    scaler.update()
    state.sync()
    kinds = {name: type(handler).__name__ for name, handler in state._handlers.items()}
    assert kinds == {
        "model": "ModelStateHandler", "optimizer": "OptimizerStateHandler", "scaler": "ScalerStateHandler"
    }  # fmt: skip


def test_saved_copies_have_memory_of_their_own(alone: None) -> None:
    model = torch.nn.BatchNorm1d(3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    for _ in range(2):
        model(torch.randn(4, 3)).pow(2).sum().backward()
        optimizer.step()
        assert not torch.equal(model.running_mean, before[0]["running_mean"])  # type: ignore[arg-type]
        state.restore()
        after = of_tensors([model.state_dict(), optimizer.state_dict()])
        for one, other in zip(after, of_tensors(list(before)), strict=True):
            assert torch.equal(one, other)
    state.model = torch.nn.BatchNorm1d(3)
    state.model.weight.data.fill_(5.0)
    state.restore()
    assert torch.equal(state.model.weight, torch.ones(3)) and model is not state.model


def test_state_of_another_dtype_than_its_parameters_is_kept(alone: None) -> None:
    """load_state_dict() of torch casts it."""
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.state[weight]["master"] = torch.full((3,), 1 / 3)
    state = hvd.elastic.TorchState(optimizer=optimizer)
    optimizer.state[weight]["master"].zero_()
    state.restore()
    assert torch.equal(optimizer.state[weight]["master"], torch.full((3,), 1 / 3))


def test_handlers_of_a_script() -> None:
    class Counter_:
        value = 0

    class Handler(handlers.StateHandler):
        def save(self) -> None:
            self._saved = self.value.value

        def restore(self) -> None:
            self.value.value = self._saved

        def sync(self) -> None:
            self.value.value = hvd.broadcast_object(self.value.value, self.root_rank)

    registry = hvd.elastic.state.get_handler_registry()
    hvd.elastic.state.set_handler_registry([*registry, (Counter_, Handler)])
    hvd.init()
    try:
        state = hvd.elastic.TorchState(counter=Counter_())
        for number in (1, 2):
            state.counter.value = number
            state.commit()
        state.counter.value = 3
        state._go_back(state._commits.newest - 1)
        assert state.counter.value == 1
        state.sync()
        assert state.counter.value == 1
    finally:
        hvd.shutdown()
        hvd.elastic.state.set_handler_registry(registry)


def test_a_ddp_model_is_refused() -> None:
    wrapped = object.__new__(torch.nn.parallel.DistributedDataParallel)
    torch.nn.Module.__init__(wrapped)
    with refused(errors.ddp_in_state):
        hvd.elastic.TorchState(model=wrapped)
