"""The lab: trains a script with several numbers of ranks, compressions and seeds, and reports on it all.

    python -m horovod.lab --np 1 2 4 --compression none bit16 bit8 --epochs 3 --seeds 3

Neither PyTorch nor the engine is imported here: every run is a job of its own, and what the report says of it
is read from the log that the job wrote. docs/lab.md tells the options, the files and the format of a log.
"""
