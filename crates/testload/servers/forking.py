"""A process for each connection, like inetd. A request hashes, about 1 to 4 ms with the fork."""

import hashlib
import os
import random
import socketserver
import sys


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        random.seed(os.urandom(8))
        digest = hashlib.sha256(bytes(1000 * random.randint(500, 1500))).hexdigest().encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\nConnection: close\r\n\r\n" + digest)


class Server(socketserver.ForkingTCPServer):
    request_queue_size = 128
    allow_reuse_address = True
    max_children = 200


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
