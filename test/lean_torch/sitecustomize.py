"""Imported by every Python process that has this folder on PYTHONPATH, before anything else."""

import lean_torch  # noqa: F401 -- it arranges that by being imported
