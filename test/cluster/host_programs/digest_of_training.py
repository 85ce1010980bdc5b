"""Trains for some steps with 8-bit gradients, and prints a digest of what came of it: `.. [STEPS]`.

With a number that is never reached it trains until something fails, prints that and the time, and ends.
"""

import hashlib
import os
import sys
import time

import torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

hvd.init()
torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.bit8,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
images = torch.Generator().manual_seed(hvd.rank())
try:
    for step in range(int(sys.argv[1])):
        x, y = torch.rand(16, 784, generator=images), torch.randint(10, (16,), generator=images)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step == 2:
            print("under way", flush=True)
except HorovodInternalError as error:
    print(f"{time.time():.3f} {error}", flush=True)
    os._exit(3)
trained = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
world = hvd.size(), hvd.local_size(), hvd.cross_size()
line = f"{hvd.rank()} of {world}: {hashlib.sha256(trained).hexdigest()}\n"
os.write(1, line.encode())  # at once: torchrun's ranks share a pipe
hvd.shutdown()
