"""Every Python process that has this folder on PYTHONPATH imports this module before any other."""

import os

if "WARM_PYTHON" in os.environ:
    import warm_python

    warm_python.run_in_a_fork()

import lean_torch  # noqa: F401 -- it arranges that by being imported
