"""The lab: trains a script with several numbers of ranks, compressions and seeds, and reports the results.

    python -m horovod.lab --np 1 2 4 --compression none bit16 bit8 --epochs 3 --seeds 3

Imports neither PyTorch nor the engine: every run is a separate job, and the report reads the job's log.
docs/lab.md describes the options, the files and the format of a log.
"""
