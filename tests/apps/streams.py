# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""A server and a client on asyncio's streams: streams.py serve PORT, streams.py ask HOST PORT MIBS SECONDS."""

import asyncio
import hashlib
import json
import os
import sys
import time

CLIENTS = 16
PART = 1 << 16


async def serve(port: int) -> None:
    """Sends back what comes."""
    async def echo(reader, writer) -> None:
        while data := await reader.read(PART):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(echo, "0.0.0.0", port) as server:
        await server.serve_forever()


async def stream(host: str, port: int, size: int) -> float:
    """Octets per second, there and back at once."""
    reader, writer = await asyncio.open_connection(host, port)
    sent, got = hashlib.sha256(), hashlib.sha256()

    async def send() -> None:
        part = os.urandom(1 << 20)
        for _ in range(size >> 20):
            sent.update(part)
            writer.write(part)
            await writer.drain()
        writer.write_eof()

    begin = time.monotonic()
    sender, count = asyncio.create_task(send()), 0
    while data := await reader.read(PART):
        got.update(data)
        count += len(data)
    await sender
    seconds = time.monotonic() - begin
    writer.close()
    await writer.wait_closed()
    if count != size or sent.digest() != got.digest():
        raise SystemExit(f"{size} octets came back as {count} others")
    return size / seconds


async def ask(host: str, port: int, seconds: float) -> int:
    """Messages to and fro on one connection, for some seconds."""
    reader, writer = await asyncio.open_connection(host, port)
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        message = os.urandom(1000)
        writer.write(message)
        if await reader.readexactly(len(message)) != message:
            raise SystemExit("other octets came back")
        count += 1
    writer.close()
    await writer.wait_closed()
    return count


async def client(host: str, port: int, size: int, seconds: float) -> None:
    """Both, and a line of JSON."""
    speed = await stream(host, port, size)
    counts = await asyncio.gather(*(ask(host, port, seconds) for _ in range(CLIENTS)))
    print(json.dumps({"speed": speed, "rate": sum(counts) / seconds}))


if sys.argv[1] == "serve":
    asyncio.run(serve(int(sys.argv[2])))
else:
    asyncio.run(client(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) << 20, float(sys.argv[5])))
