"""Reads one URL over many connections until the time is up, again and again: the lightest client that reads every byte.

  sink.py PORT PATH CLIENTS SECONDS

One thread, one buffer of 256 KiB, epoll. A fleet of 64 curls takes two to three times its CPU for a GB, and that of all but the
fastest servers. Prints bytes, seconds, answers other than 200, and bodies that ended early.
"""
import json, selectors, socket, sys, time

HEAD = 65536


class Client:
    def __init__(self, port, request, poll):
        self.head, self.left, self.status = b"", None, None
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(request)
        self.socket.setblocking(False)
        poll.register(self.socket, selectors.EVENT_READ, self)

    def take(self, buffer):
        """Reads what is there; the bytes of the body, none at its end."""
        try:
            got = self.socket.recv_into(buffer)
        except BlockingIOError:
            return 0
        if not got:
            return None
        if self.left is None:
            self.head += bytes(buffer[:got])
            end = self.head.find(b"\r\n\r\n")
            if end < 0 and len(self.head) > HEAD:
                return None
            if end < 0:
                return 0
            lines = self.head[:end].decode("latin-1").split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:])
            self.status, self.left = int(lines[0].split()[1]), int(fields.get("content-length", 0))
            got = len(self.head) - end - 4
        self.left -= got
        return got


def main():
    port, path, clients, seconds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    request = ("GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: */*\r\nConnection: close\r\n\r\n" % (path, port)).encode()
    poll, buffer, found = selectors.DefaultSelector(), memoryview(bytearray(256 << 10)), {"bytes": 0, "bad": 0, "short": 0}
    begin = time.perf_counter()
    for _ in range(clients):
        Client(port, request, poll)
    while (now := time.perf_counter() - begin) < seconds:
        for key, _ in poll.select(min(1, seconds - now)):
            client = key.data
            got = client.take(buffer)
            found["bytes"] += got or 0
            if got is None or client.left is not None and client.left <= 0:
                found["bad"] += client.status != 200
                found["short"] += client.left != 0
                poll.unregister(client.socket)
                client.socket.close()
                Client(port, request, poll)
    print(json.dumps({**found, "s": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
