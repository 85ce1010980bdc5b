"""A rank of test_collectives_on_hosts.py: sums under every compression, and counts the bytes on the cable."""

import json
import sys
from pathlib import Path

import numpy as np
import torch

import horovod.torch as hvd

SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")  # of the whole host


def contribution(rank: int, count: int) -> np.ndarray:
    return np.random.default_rng([5, rank]).standard_normal(count, dtype=np.float32)


def main(folder: Path, count: int, names: list[str]) -> None:
    hvd.init()
    source = torch.from_numpy(contribution(hvd.rank(), count))
    sent = {}
    for name in names:
        compression = getattr(hvd.Compression, name)
        counts = []
        for _ in range(3):  # TCP may send a segment twice on a busy machine, so the least counts
            work = source.clone()
            hvd.barrier()
            before = int(SENT.read_text())
            hvd.allreduce_(work, name=name, op=hvd.Sum, compression=compression)
            hvd.barrier()
            counts.append(int(SENT.read_text()) - before)
        sent[name] = min(counts)
        np.save(folder / f"{name}-{hvd.rank()}.npy", work.numpy())
    (folder / f"sent-{hvd.rank()}.json").write_text(json.dumps(sent))
    hvd.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
