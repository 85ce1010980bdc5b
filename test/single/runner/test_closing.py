"""The last lines of horovodrun, computed from notes."""

from __future__ import annotations

import pytest

from horovod.runner import closing
from horovod.runner.closing import Closing


def lines(asked: str, *notes: str, quiet: bool = False) -> list[str]:
    """The last lines after these notes."""
    last = Closing(asked, quiet)
    for note in notes:
        last.hear(f"note {note}")
    return last.lines()


SAVED = ("traffic 1 1000000000 256000000 2000000 10000000 host",) * 2
NONE = "no rank called hvd.init() or wrapped a model in DDP"


@pytest.mark.parametrize(
    ("asked", "told", "said"),
    [
        ("", (), ""),
        ("--compression", ("joining", "uses hvd"), ""),
        ("--compression", ("uses ddp",), ""),
        ("--compression", (), f"had no effect: {NONE}; for a script of torch.distributed, add --ddp"),
        ("--compression", ("joining", "done"), f"had no effect: {NONE}; for a script of torch.distributed"),
        ("HOROVOD_COMPRESSION", (), f"HOROVOD_COMPRESSION had no effect: {NONE}"),
        ("--ddp --compression", ("uses ddp",), ""),
        ("--ddp --compression", ("uses hvd", "uses ddp"), ""),
        ("--ddp --compression", (), f"--ddp --compression had no effect: {NONE}"),
        ("--ddp --compression", ("uses hvd",), "none wrapped a model in DDP; leave out --ddp"),
        ("HOROVOD_DDP_COMPRESSION", ("uses hvd",), "none wrapped a model in DDP; set HOROVOD_COMPRESSION"),
        ("HOROVOD_COMPRESSION and HOROVOD_DDP_COMPRESSION", ("uses hvd",), ""),
    ],
)
@pytest.mark.parametrize("quiet", [False, True])
def test_a_compression_without_effect(asked: str, told: tuple[str, ...], said: str, quiet: bool) -> None:
    """It is a warning, which --quiet keeps."""
    found = lines(asked, *told, quiet=quiet)
    assert len(found) == bool(said)
    assert all(line.startswith("warning: ") and said in line for line in found)


def test_a_compression_that_nobody_knows_of_ends_without_a_remedy() -> None:
    (said,) = lines("--ddp --compression")
    assert said == f"warning: --ddp --compression had no effect: {NONE}"


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        (SAVED, "2.0 GB travelled as 512 MB (3.9x less); ranks waited 20 % of the time for communication"),
        (("traffic 1 4000000 1030000 5 1000000 host",), "4.0 MB travelled as 1.0 MB (3.9x less); ranks"),
        (("traffic 1 200000000 200000000 9 10 host",), "200 MB travelled uncompressed; ranks waited 90 %"),
        (("traffic 1 4 1 30 10 host", SAVED[0]), "1.0 GB travelled as 256 MB (3.9x less); ranks waited 20 %"),
        (("traffic 1 9000000 1000 30 10 host",), "9.0 MB travelled as 1.0 kB (9000.0x less); ranks"),
    ],
)
def test_what_sums_cost(notes: tuple[str, ...], said: str) -> None:
    (line,) = lines("", *notes)
    assert line.startswith(f"gradients: {said}")
    assert lines("", *notes, quiet=True) == []


def test_of_gpus_no_waiting_is_said() -> None:
    (line,) = lines("", SAVED[0].replace("host", "gpu"), SAVED[1])
    assert line == "gradients: 2.0 GB travelled as 512 MB (3.9x less)"


@pytest.mark.parametrize(
    "notes",
    [
        (),
        ("joined", "done"),
        ("traffic 1 999999 250000 5 10 host",),  # a negligible amount, compressed
        ("traffic 1 99999999 99999999 5 10 host",),  # and uncompressed
    ],
)
def test_of_little_nothing_is_said(notes: tuple[str, ...]) -> None:
    assert lines("", *notes) == []


def test_other_reports_are_none_of_its_business() -> None:
    last = Closing("--compression")
    last.hear("started uses hvd")
    last.hear("ended 0 0")
    assert len(last.lines()) == 1


@pytest.mark.parametrize("note", ["traffic 1 2", "traffic 1 a b c d host", "traffic"])
def test_a_note_that_no_rank_tells(note: str) -> None:
    with pytest.raises(ValueError):
        Closing().hear(f"note {note}")


@pytest.mark.parametrize(
    ("values", "environment", "asked"),
    [
        ({}, {}, ""),
        ({"compression": "bit8"}, {"HOROVOD_COMPRESSION": "bit8"}, "--compression"),
        ({"compression": "bit8", "ddp": True}, {"HOROVOD_DDP_COMPRESSION": "bit8"}, "--ddp --compression"),
        ({"compression": "none"}, {"HOROVOD_COMPRESSION": "none"}, ""),
        ({}, {"HOROVOD_COMPRESSION": " bit8"}, "HOROVOD_COMPRESSION"),
        ({}, {"HOROVOD_COMPRESSION": "", "HOROVOD_DDP_COMPRESSION": "int8"}, "HOROVOD_DDP_COMPRESSION"),
        (
            {"ddp": True},
            {"HOROVOD_COMPRESSION": "bit8", "HOROVOD_DDP_COMPRESSION": "int8"},
            "HOROVOD_COMPRESSION and HOROVOD_DDP_COMPRESSION",
        ),
    ],
)
def test_what_asks_for_compression(
    values: dict[str, object], environment: dict[str, str], asked: str
) -> None:
    assert closing.asked(values, environment) == asked
    said = Closing(closing.asked(values, environment)).lines()
    assert len(said) == bool(asked)
