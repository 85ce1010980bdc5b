"""Write all traffic of an interface to a file until the program is ended: `sniff.py INTERFACE FILE`."""

import socket
import sys

ALL_PROTOCOLS = 0x0003
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as packets:
    packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    packets.bind((sys.argv[1], 0))
    print("listening", flush=True)
    with open(sys.argv[2], "wb", buffering=0) as file:
        while True:
            file.write(packets.recv(1 << 17))
