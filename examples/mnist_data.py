"""MNIST as two tensor datasets, from the first place that has it; every example loads its data here.

Places, in order:

1. `--data-dir`, else `$MNIST_DATA_DIR`: a folder with torchvision's file names (`train-images-idx3-ubyte` and
   so on), gzipped or not, directly or in `MNIST/raw/`. This folder must hold the data; nothing is downloaded
   into it.
2. `../shared/data/mnist` beside the repository, then the cache folder `~/.cache/horovod-examples/mnist`.
3. A download into that cache folder. Every rank may request it at once: a lock file lets one process per host
   download, and the others find its files.
4. Without network, and only with `--allow-digits`: scikit-learn's 1,797 handwritten digits, 8x8 upsampled to
   28x28, under the name "digits", so that its figures are not mistaken for MNIST's.

The IDX format (http://yann.lecun.com/exdb/mnist): two zero bytes, a type byte (8 = uint8), the number of
dimensions, each dimension as a big-endian 32-bit integer, then the elements.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import http.client
import os
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

MEAN, STD = 0.1307, 0.3081  # of MNIST's training pixels, scaled to 0..1; as in torchvision's recipes
IMAGE_SHAPE = (28, 28)
CLASSES = 10

MIRRORS = [
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
]
DOWNLOAD_TIMEOUT = 10.0  # seconds without an answer
WORKPLACE_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist"


@dataclass(frozen=True)
class IdxFile:
    """One of the four files: its name, its shape, and the SHA-256 of its decompressed content."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header_size(self) -> int:
        return 4 + 4 * len(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the decompressed file."""
        return self.header_size + prod(self.shape)

    @property
    def magic(self) -> int:
        """2051 for images, 2049 for labels: type byte 8, then the number of dimensions."""
        return 0x0800 + len(self.shape)


TRAIN, TEST = 60_000, 10_000  # images
FILES = [
    IdxFile(
        "train-images-idx3-ubyte",
        (TRAIN, *IMAGE_SHAPE),
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    IdxFile(
        "train-labels-idx1-ubyte",
        (TRAIN,),
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte",
        (TEST, *IMAGE_SHAPE),
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte",
        (TEST,),
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
]


class DataError(RuntimeError):
    """The data cannot be used. The message names the file, the expectation, and the remedy."""


class DownloadError(DataError):
    """No mirror delivered the data."""


@dataclass(frozen=True)
class Data:
    """Images as float32 [n, 1, 28, 28] of mean 0 and standard deviation 1, labels as int64 [n]."""

    name: str  # "mnist" or "digits"
    source: str  # the folder, for people
    train: TensorDataset
    test: TensorDataset


def load(data_dir: str | None, allow_digits: bool, say: Callable[[str], None] = print) -> Data:
    """The data, from the first of the places listed at the top of this file that has it.

    DataError if a file is missing or damaged, or if there is neither data nor network.
    """
    named = data_dir or os.environ.get("MNIST_DATA_DIR")
    if named:
        return read_folder(Path(named))
    cache = cache_folder()
    for folder in (WORKPLACE_DATA, cache):
        if all(find_file(folder, file.name) for file in FILES):
            return read_folder(folder)
    try:
        download(cache, say)
    except DownloadError as error:
        if not allow_digits:
            raise DataError(
                f"there is no MNIST here, and downloading it failed: {error}\n"
                "Put the four files into a folder and name it with --data-dir or $MNIST_DATA_DIR, "
                "or pass --allow-digits to train on scikit-learn's small digits instead."
            ) from error
        say(
            "dataset=digits: no MNIST and no network, so this trains on scikit-learn's 1,797 digits "
            "(8x8, upsampled); its accuracy says nothing about MNIST"
        )
        return load_digits()
    return read_folder(cache)


def cache_folder() -> Path:
    """The folder for downloads, by the XDG convention."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "horovod-examples" / "mnist"


# Reading


def find_file(folder: Path, name: str) -> Path | None:
    """`name`, or `name`.gz, in `folder` or in torchvision's place below `folder`."""
    for place in (folder, folder / "MNIST" / "raw"):
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    return None


def read_folder(folder: Path) -> Data:
    """The data of the four files in `folder`. DataError if one is missing or wrong."""
    found = {file.name: find_file(folder, file.name) for file in FILES}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise DataError(
            f"{folder} lacks {', '.join(missing)} (plain or .gz, there or in MNIST/raw/). "
            "Name another folder with --data-dir or $MNIST_DATA_DIR, or none to have MNIST downloaded."
        )
    contents = [read_idx(path, file) for path, file in zip(found.values(), FILES, strict=True) if path]
    train_images, train_labels, test_images, test_labels = contents
    return Data("mnist", str(folder), dataset(train_images, train_labels), dataset(test_images, test_labels))


def read_idx(path: Path, file: IdxFile) -> torch.Tensor:
    """The elements of an IDX file as a uint8 tensor. DataError unless it holds exactly `file.shape`."""
    expectation = (
        f"expected magic {file.magic}, shape {list(file.shape)} and {file.size} bytes"
        f"{' once decompressed' if path.suffix == '.gz' else ''}. Replace the file."
    )
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            content = stream.read(file.size + 1)  # one more byte, to detect a file that is too long
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged or incomplete gzip data ({error}); {expectation}") from error
    if len(content) < file.header_size:
        raise DataError(f"{path} is truncated, it has {len(content)} bytes; {expectation}")
    magic, *shape = (int.from_bytes(content[i : i + 4], "big") for i in range(0, file.header_size, 4))
    if magic != file.magic:
        raise DataError(f"{path} has magic {magic}; {expectation}")
    if tuple(shape) != file.shape:
        raise DataError(f"{path} announces shape {shape}; {expectation}")
    if len(content) < file.size:
        raise DataError(f"{path} is truncated, it has {len(content)} bytes; {expectation}")
    if len(content) > file.size:
        raise DataError(f"{path} is too long; {expectation}")
    elements = torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=file.header_size)
    if len(file.shape) == 1 and int(elements.max()) >= CLASSES:
        raise DataError(f"{path} has a label {int(elements.max())}; expected 0 to 9. Replace the file.")
    return elements.view(file.shape)


def dataset(images: torch.Tensor, labels: torch.Tensor) -> TensorDataset:
    """uint8 [n, 28, 28] and uint8 [n] in the form that a network expects."""
    return TensorDataset(normalised(images.float().div_(255)), labels.long())


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    """[n, 28, 28] of 0..1 as [n, 1, 28, 28] in units of MNIST's standard deviation. Changes `pixels`."""
    return pixels.unsqueeze(1).sub_(MEAN).div_(STD)


def load_digits() -> Data:
    """scikit-learn's bundled digits (Alpaydin and Kaynak, UCI 1998): 1,500 for training, 297 for tests."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise DataError("--allow-digits needs scikit-learn: pip install scikit-learn") from error
    digits = datasets.load_digits()
    pixels = torch.from_numpy(digits.images).float().div_(16)  # their scale is 0..16
    labels = torch.from_numpy(digits.target).long()
    images = torch.nn.functional.interpolate(pixels.unsqueeze(1), size=IMAGE_SHAPE, mode="bilinear")
    # The file is ordered by writer, so the split draws from all of it, the same on every rank.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = normalised(images.squeeze(1))[order], labels[order]
    return Data(
        "digits",
        "scikit-learn",
        TensorDataset(images[:1500], labels[:1500]),
        TensorDataset(images[1500:], labels[1500:]),
    )


# Downloading


def download(folder: Path, say: Callable[[str], None]) -> None:
    """Download the files that `folder` lacks. DownloadError if all mirrors fail. Safe in many processes."""
    asked = time.time()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_one_process(folder / "lock"):
            # A process that waited while another failed takes its result: ranks must agree on the data.
            failure = folder / "download-failed.txt"
            if failure.exists() and failure.stat().st_mtime >= asked:
                raise DownloadError(failure.read_text())
            for file in FILES:
                if find_file(folder, file.name) is None:
                    fetch_or_note(file, folder, failure, say)
    except OSError as error:
        raise DownloadError(f"the cache folder cannot be written: {error}") from error


@contextmanager
def only_one_process(lock_file: Path) -> Iterator[None]:
    """Hold the lock; other processes wait here. The kernel releases the lock of a process that dies."""
    with lock_file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def fetch_or_note(file: IdxFile, folder: Path, failure: Path, say: Callable[[str], None]) -> None:
    """Download one file into `folder`. Also writes a failure to `failure`, for waiting processes."""
    try:
        content = fetch(file, say)
    except DownloadError as error:
        failure.write_text(str(error))
        raise
    target = folder / file.name
    partial = folder / f"{file.name}.partial"
    partial.write_bytes(content)
    os.replace(partial, target)  # so that a file under its final name is always complete


def fetch(file: IdxFile, say: Callable[[str], None]) -> bytes:
    """The file's content, decompressed, from the first mirror whose answer has the right checksum."""
    problems = []
    for mirror in MIRRORS:
        address = f"{mirror}{file.name}.gz"
        try:
            with (
                urllib.request.urlopen(address, timeout=DOWNLOAD_TIMEOUT) as answer,
                gzip.open(answer) as stream,
            ):
                say(f"downloading {address}")
                content = bytes(stream.read(file.size + 1))
        except (OSError, EOFError, zlib.error, http.client.HTTPException) as error:
            problems.append(f"{address}: {error}")
            continue
        # Of the content, because mirrors may compress it differently.
        if hashlib.sha256(content).hexdigest() == file.sha256:
            return content
        problems.append(f"{address}: SHA-256 differs from {file.sha256} once decompressed")
    raise DownloadError("; ".join(problems))
