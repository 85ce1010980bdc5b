"""horovodrun: starts a command on N ranks, shows their output, and says truthfully how they ended.

Stands apart from the rest: imports neither torch nor the native core. The way of a job:
`launch` (command line and config file, held by the table in `options`) -> `hosts` -> `launchers` (one command
line of mpirun) -> `supervise` (runs it) -> `rank` (one small process per rank) -> `output` and `outcome`.
"""
