"""Train on MNIST for some steps with 8-bit gradients, and print a digest of the parameters: `.. STEPS`.

With a number that is never reached it trains until an operation fails, prints the error and the time, and
ends. If there is no MNIST it uses scikit-learn's digits.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import mnist_data
from mnist_model import MnistNet

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError

hvd.init()
torch.manual_seed(1)
torch.set_num_threads(1)
model = MnistNet()
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.bit8,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
data = mnist_data.load(None, allow_digits=True, say=lambda _: None).train
order = torch.Generator().manual_seed(hvd.rank())
try:
    for step in range(int(sys.argv[1])):
        images, labels = data[torch.randint(len(data), (32,), generator=order)]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if step == 2:
            print("under way", flush=True)
except HorovodInternalError as error:
    print(f"{time.time():.3f} {error}", flush=True)
    os._exit(3)
trained = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
world = hvd.size(), hvd.local_size(), hvd.cross_size()
line = f"{hvd.rank()} of {world}: {hashlib.sha256(trained).hexdigest()}\n"
os.write(1, line.encode())  # one write, because torchrun's ranks share a pipe
hvd.shutdown()
