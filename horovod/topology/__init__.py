"""The machines of a job's ranks, drawn: hosts, sockets, GPUs, network cards, and the links between them.

horovodrun --topology -np 4 -H node1:2,node2:2
"""
