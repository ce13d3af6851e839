"""One event loop: asyncio. A request writes and parses JSON, about 1 to 3 ms."""

import asyncio
import json
import random
import sys


def answer():
    rows = [{"id": n, "name": f"row {n}", "values": [n, n + 1]} for n in range(random.randint(400, 1400))]
    text = json.dumps(rows)
    return f"{len(json.loads(text))}\n".encode()


async def serve(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            body = answer()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=128)
    await server.serve_forever()


asyncio.run(main())
