"""The examples' data loader, on files made here: accepted and refused files, downloads, and the digits."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TRAIN, TEST = 50, 20  # images in the data made here
NAMES = [f"{of}-{kind}-ubyte" for of in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
SHAPES = [(TRAIN, 28, 28), (TRAIN,), (TEST, 28, 28), (TEST,)]


def idx_bytes(shape: tuple[int, ...], seed: int) -> bytes:
    """An IDX file of pixels (3 dimensions) or labels (1 dimension) of 0 to 9."""
    top = 10 if len(shape) == 1 else 256
    generator = torch.Generator().manual_seed(seed)
    elements = torch.randint(0, top, shape, generator=generator, dtype=torch.uint8)
    return struct.pack(f">I{len(shape)}I", 0x0800 + len(shape), *shape) + elements.numpy().tobytes()


CONTENTS = {NAMES[seed]: idx_bytes(shape, seed) for seed, shape in enumerate(SHAPES)}


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """examples/mnist_data.py, which expects the small data made here, finds none, and has no mirror."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delenv("MNIST_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    import mnist_data

    files = [
        mnist_data.IdxFile(name, shape, hashlib.sha256(CONTENTS[name]).hexdigest())
        for name, shape in zip(NAMES, SHAPES, strict=True)
    ]
    monkeypatch.setattr(mnist_data, "FILES", files)
    monkeypatch.setattr(mnist_data, "MIRRORS", [])
    monkeypatch.setattr(mnist_data, "WORKPLACE_DATA", tmp_path / "no-workplace")
    yield mnist_data
    sys.modules.pop("mnist_data")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the four files, uncompressed."""
    folder = tmp_path / "mnist"
    write_all(folder)
    return folder


def write_all(folder: Path, zipped: bool = False) -> None:
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def check_content(found: object) -> None:
    """Assert that `found` is exactly the data made here, normalised."""
    for split, images_name, labels_name, count in (("train", *NAMES[:2], TRAIN), ("test", *NAMES[2:], TEST)):
        images, labels = getattr(found, split).tensors
        pixels = torch.frombuffer(bytearray(CONTENTS[images_name][16:]), dtype=torch.uint8)
        assert images.shape == (count, 1, 28, 28) and images.dtype == torch.float32
        assert torch.allclose(images.flatten(), (pixels.float() / 255 - 0.1307) / 0.3081, atol=1e-6)
        assert labels.dtype == torch.int64 and labels.tolist() == list(CONTENTS[labels_name][8:])


def never_said(line: str) -> None:
    raise AssertionError(f"said: {line}")


# Locations of the files


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("way", ["option", "torchvision", "variable", "option before variable", "cache"])
def test_where_the_files_are_found(
    data: ModuleType, way: str, zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named"
    holds = {"torchvision": named / "MNIST" / "raw", "cache": data.cache_folder()}.get(way, named)
    write_all(holds, zipped)
    if "variable" in way:
        monkeypatch.setenv("MNIST_DATA_DIR", str(named) if way == "variable" else "/nowhere")
    found = data.load(None if way in ("variable", "cache") else str(named), False, never_said)
    assert (found.name, found.source) == ("mnist", str(named if way == "torchvision" else holds))
    check_content(found)


def test_the_real_shapes_are_mnists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import mnist_data

    assert [(file.name, file.magic, file.shape) for file in mnist_data.FILES] == [
        ("train-images-idx3-ubyte", 2051, (60000, 28, 28)),
        ("train-labels-idx1-ubyte", 2049, (60000,)),
        ("t10k-images-idx3-ubyte", 2051, (10000, 28, 28)),
        ("t10k-labels-idx1-ubyte", 2049, (10000,)),
    ]


# Refused files: every message names the file and the expected content


def refusal(data: ModuleType, folder: Path, allow_digits: bool = False) -> str:
    with pytest.raises(data.DataError) as caught:
        data.load(str(folder), allow_digits, never_said)
    return str(caught.value)


DAMAGES = {
    "empty": (lambda c: b"", "is truncated, it has 0 bytes"),
    "cut in the header": (lambda c: c[:10], "is truncated, it has 10 bytes"),
    "cut in the pixels": (lambda c: c[:-1], f"is truncated, it has {16 + TRAIN * 784 - 1} bytes"),
    "too long": (lambda c: c + b"\0", "is too long"),
    "labels' magic": (lambda c: struct.pack(">I", 2049) + c[4:], "has magic 2049"),
    "one image less": (
        lambda c: c[:4] + struct.pack(">I", TRAIN - 1) + c[8:-784],
        f"shape [{TRAIN - 1}, 28, 28]",
    ),
    "other image size": (lambda c: c[:8] + struct.pack(">2I", 14, 56) + c[16:], f"shape [{TRAIN}, 14, 56]"),
}


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_images(data: ModuleType, folder: Path, damage: str, zipped: bool) -> None:
    change, complaint = DAMAGES[damage]
    path = folder / NAMES[0]
    content = change(path.read_bytes())
    path.unlink()
    if zipped:
        path = path.with_name(f"{path.name}.gz")
    path.write_bytes(gzip.compress(content) if zipped else content)
    message = refusal(data, folder)
    assert message.startswith(str(path)) and complaint in message
    assert f"expected magic 2051, shape [{TRAIN}, 28, 28]" in message


@pytest.mark.parametrize("damage", ["cut", "flipped", "no gzip"])
def test_damaged_gzip(data: ModuleType, tmp_path: Path, damage: str) -> None:
    write_all(tmp_path / "zipped", zipped=True)
    path = tmp_path / "zipped" / f"{NAMES[2]}.gz"
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-100:]
    elif damage == "flipped":
        content[-6] ^= 1  # in the checksum at the end, so that the data itself decompresses
    else:
        content[:2] = b"<h"
    path.write_bytes(content)
    message = refusal(data, tmp_path / "zipped")
    assert message.startswith(f"{path} is damaged or incomplete gzip data")
    assert f"expected magic 2051, shape [{TEST}, 28, 28]" in message


def test_label_above_nine(data: ModuleType, folder: Path) -> None:
    path = folder / NAMES[1]
    path.write_bytes(path.read_bytes()[:-1] + b"\x0a")
    assert refusal(data, folder).startswith(f"{path} has a label 10; expected 0 to 9")


def test_missing_file(data: ModuleType, folder: Path) -> None:
    (folder / NAMES[3]).unlink()
    assert f"{folder} lacks {NAMES[3]}" in refusal(data, folder)


def test_named_folder_without_data_is_not_replaced_by_digits(data: ModuleType, tmp_path: Path) -> None:
    message = refusal(data, tmp_path, allow_digits=True)
    assert all(name in message for name in NAMES) and "--data-dir" in message


# Downloads, from a server of this test


class Mirror(http.server.ThreadingHTTPServer):
    """Serves a folder, and counts the requests for each file."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), functools.partial(MirrorAnswer, directory=str(folder)))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class MirrorAnswer(http.server.SimpleHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        self.server.asked.append(self.path.lstrip("/"))
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Keeps requests out of the tests' output."""


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    write_all(tmp_path / "mirror", zipped=True)
    with Mirror(tmp_path / "mirror") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_download_is_kept(data: ModuleType, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MIRRORS", [mirror.address])
    said: list[str] = []
    found = data.load(None, False, said.append)
    check_content(found)
    assert found.name == "mnist" and len(said) == 4
    check_content(data.load(None, False, never_said))
    assert sorted(mirror.asked) == sorted(f"{name}.gz" for name in NAMES)


def test_only_one_of_many_downloads(
    data: ModuleType, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "MIRRORS", [mirror.address])
    # flock is held per open file, so threads exclude each other just as processes do.
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: data.load(None, False, lambda line: None), range(4)):
            check_content(found)
    assert len(mirror.asked) == 4


def test_second_mirror_after_a_wrong_checksum(
    data: ModuleType, mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong").mkdir()
    for name in NAMES:
        (tmp_path / "wrong" / f"{name}.gz").write_bytes(gzip.compress(CONTENTS[name][:-1] + b"\1"))
    with Mirror(tmp_path / "wrong") as wrong:
        thread = threading.Thread(target=wrong.serve_forever)
        thread.start()
        monkeypatch.setattr(data, "MIRRORS", [wrong.address, mirror.address])
        check_content(data.load(None, False, lambda line: None))
        monkeypatch.setattr(data, "MIRRORS", [wrong.address])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other-cache"))
        with pytest.raises(data.DataError, match="SHA-256 differs"):
            data.load(None, False, lambda line: None)
        wrong.shutdown()
        thread.join()
    assert os.listdir(data.cache_folder()) and not list(data.cache_folder().glob("*ubyte*"))


def test_failure_of_one_is_the_answer_for_all_who_waited(
    data: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = data.cache_folder()
    cache.mkdir(parents=True)
    only_one_process = data.only_one_process
    arrived = threading.Event()

    def arrive(lock_file: Path) -> AbstractContextManager[None]:
        arrived.set()
        return only_one_process(lock_file)

    monkeypatch.setattr(data, "only_one_process", arrive)
    with ThreadPoolExecutor(1) as pool:
        with only_one_process(cache / "lock"):
            waiting = pool.submit(data.load, None, False, never_said)
            assert arrived.wait(timeout=30)
            time.sleep(0.02)  # file systems' clocks may lag by some milliseconds
            (cache / "download-failed.txt").write_text("the first one's reason")
        with pytest.raises(data.DataError, match="the first one's reason"):
            waiting.result(timeout=30)


def test_no_network_says_what_to_do(data: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with Mirror(Path.cwd()) as closed:
        address = closed.address
    monkeypatch.setattr(data, "MIRRORS", [address])
    with pytest.raises(data.DataError) as caught:
        data.load(None, False, lambda line: None)
    for part in (address, "--data-dir", "$MNIST_DATA_DIR", "--allow-digits"):
        assert part in str(caught.value)


# Digits


def test_digits_only_when_allowed(data: ModuleType) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    said: list[str] = []
    found = data.load(None, True, said.append)
    assert found.name == "digits" and len(said) == 1 and said[0].startswith("dataset=digits")
    images, labels = found.train.tensors
    assert images.shape == (1500, 1, 28, 28) and found.test.tensors[0].shape == (297, 1, 28, 28)
    assert sorted(set(labels.tolist())) == list(range(10))
    again = data.load_digits()
    assert torch.equal(images, again.train.tensors[0])  # every rank has the same split
