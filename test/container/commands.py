"""The commands that these tests, ci.yml and the docs type in the image.

This file is their only source: a test compares ci.yml and docs/containers.md with it.
"""

TRAIN = "mpirun -n 2 python examples/pytorch_mnist_compress.py --bit8-allreduce --epochs 1 --allow-digits"
TRAIN_WITH_HOROVODRUN = (
    "horovodrun -np 2 python examples/pytorch_mnist_compress.py --bit8-allreduce --epochs 1 --allow-digits"
)
CHECK_BUILD = "horovodrun --check-build"
# The parts of the package that may differ in the image: kernels, options, starting ranks, transports.
QUICK_TESTS = (
    "pytest -q sources/test/single/codec/test_codec_elements.py "
    "sources/test/single/common/options/test_runner_options.py "
    "'sources/test/parallel/test_torch_ranks.py::test_in_ranks_that_exchange_messages[test_operations_in_flight.py-2-mpi]'"
)
ALL_TESTS = "pytest -q -m 'not slow' sources/test/single sources/test/parallel"
SSHD = "/usr/sbin/sshd -De -f /home/mpiuser/.sshd_config"
