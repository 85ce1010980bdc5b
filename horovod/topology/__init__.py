"""What the ranks of a job run on: hosts, sockets, GPUs, network cards, and the links between them, drawn.

horovodrun --topology -np 4 -H node1:2,node2:2
"""
