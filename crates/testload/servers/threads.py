"""Python's HTTP server: a thread for each connection. A request sorts and sums, about 1 to 3 ms."""

import http.server
import random
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        numbers = [random.random() for _ in range(random.randint(4000, 12000))]
        numbers.sort()
        body = f"{sum(numbers[::2]):.6f}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
