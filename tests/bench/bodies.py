#!/usr/bin/env python3
"""What it costs a sender to move a file that is in the page cache to a TCP client: plain reads, a mapped file, sendfile.

  tests/bench/bodies.py [--mb 1000] [--rounds 5]

One process sends over the loopback, another one receives. Prints the sender's CPU seconds for a GB and how much memory it takes for a
client: the ways that a server's bodies could go, without the server. Medians; the ways take turns.
"""
import argparse, mmap, os, resource, socket, statistics, tempfile


def reads(size):
    def send(sock, file, length):
        buffer = bytearray(size)
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            sock.sendall(view[:count])
    return send


def mapped(sock, file, length):
    with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as whole, memoryview(whole) as view:
        for at in range(0, length, 1 << 20):
            sock.sendall(view[at:at + (1 << 20)])


def sendfile(sock, file, length):
    at = 0
    while at < length:
        at += os.sendfile(sock.fileno(), file.fileno(), at, 512 << 10)


WAYS = {"reads of 64 KiB": (reads(64 << 10), "64 KiB"), "reads of 128 KiB": (reads(128 << 10), "128 KiB"), "reads of 1 MiB": (reads(1 << 20), "1 MiB"),
        "mapped": (mapped, "none of its own; the pages count as resident"), "sendfile": (sendfile, "none")}


def cost(send, path, length):
    """CPU seconds of the sender."""
    listener = socket.create_server(("127.0.0.1", 0))
    receiver = os.fork()
    if receiver == 0:
        with socket.create_connection(listener.getsockname()) as sock:
            buffer = bytearray(1 << 20)
            while sock.recv_into(buffer):
                pass
        os._exit(0)
    out, inn = os.pipe()
    if (sender := os.fork()) == 0:
        sock, _ = listener.accept()
        with open(path, "rb", buffering=0) as file:
            before = resource.getrusage(resource.RUSAGE_SELF)
            send(sock, file, length)
            after = resource.getrusage(resource.RUSAGE_SELF)
        os.write(inn, b"%f" % (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        os._exit(0)
    listener.close()
    os.close(inn)
    seconds = float(os.read(out, 64))
    os.close(out)
    for child in (sender, receiver):
        os.waitpid(child, 0)
    return seconds


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mb", type=int, default=1_000)
    p.add_argument("--rounds", type=int, default=5)
    o = p.parse_args()
    with tempfile.NamedTemporaryFile() as file:
        block = os.urandom(1_000_000)
        for _ in range(o.mb):
            file.write(block)
        file.flush()
        found = {way: [] for way in WAYS}
        for _ in range(o.rounds):
            for way, (send, _) in WAYS.items():
                found[way].append(cost(send, file.name, o.mb * 1_000_000))
    print("| way | CPU s for a GB | memory for a client |\n|---|---|---|")
    for way, costs in found.items():
        print("| %s | %.2f | %s |" % (way, statistics.median(costs) / o.mb * 1000, WAYS[way][1]))


if __name__ == "__main__":
    main()
