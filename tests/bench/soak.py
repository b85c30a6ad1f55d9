#!/usr/bin/env python3
"""Many clients of every kind against one mirror, with sync, snapshots and gc beside them.

  tests/bench/soak.py [--minutes 10] [--clients 200] [--wheels 2000] [--jetwheel PATH]

Of the clients 40 % read pages (whole, and asking whether they changed), 20 % random ranges, 15 % whole wheels, 10 % read slowly, 10 % break
off, 5 % send garbage. Every answer is checked: pages by their links, ranges and wheels by their bytes. Every 15 seconds a new release is
synced from an upstream on the loopback, frozen, and gc runs. The mirror's memory is looked at every two seconds. Exit code 1: an answer was
wrong, the log tells of a defect, a command failed, or memory grew. Latencies hold a busy client and a busy machine as well. The figures go
to target/bench/soak.json.
"""
import argparse, asyncio, functools, gzip, hashlib, json, multiprocessing, os, pathlib, random, re, signal, socket, statistics, struct
import subprocess, sys, tempfile, threading, time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench/peers"))
import corpus, lib, upstream

DEVICE = "orin-jp6.2"
KINDS = [("page", 40), ("range", 20), ("whole", 15), ("slow", 10), ("broken", 10), ("garbage", 5)]
GROWTH_MIB = 16             # what memory may grow by from the second quarter to the last: caches fill, and the allocator keeps some


class Wrong(Exception):
    """An answer that is not what it should be."""


class Link:
    """A connection that speaks HTTP/1.1, opened anew when it was closed."""

    def __init__(self, port):
        self.port, self.writer = port, None

    async def ask(self, path, headers={}, take=None):
        """(status, headers, body); `take(reader, length)` reads the body in its own way and yields it."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = ["GET %s HTTP/1.1" % path, "Host: soak"] + ["%s: %s" % h for h in headers.items()]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)).decode().split("\r\n")
        got = {k.lower(): v for k, v in (line.split(": ", 1) for line in head[1:] if line)}
        status, length = int(head[0].split()[1]), int(got.get("content-length", 0))
        if status == 304:
            length = 0
        body = await (take(self.reader, length) if take else asyncio.wait_for(self.reader.readexactly(length), 120))
        return status, got, body

    def close(self, reset=False):
        if self.writer is not None:
            if reset:
                self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort() if reset else self.writer.close()
            self.writer = None


class Client:
    """One kind of client; `turn` makes one request or more and checks what comes."""

    def __init__(self, port, truth, rng, tally):
        self.link, self.port, self.truth, self.rng, self.tally = Link(port), port, truth, rng, tally

    def check(self, right, what):
        if not right:
            raise Wrong(what)

    async def page(self):
        project = self.rng.choice(list(self.truth["pages"]))
        accept, more = self.rng.choice([(lib.HTML, {}), (lib.HTML, {"Accept-Encoding": "gzip"}), (lib.JSON, {"Accept-Encoding": "gzip"})])
        path, headers = "/%s/simple/%s/" % (DEVICE, project), {"Accept": accept, **more}
        status, got, body = await self.timed(path, headers)
        self.check(status == 200, "%s: %d" % (path, status))
        text = gzip.decompress(body) if got.get("content-encoding") == "gzip" else body
        found = len(json.loads(text)["files"]) if accept == lib.JSON else text.count(b"<a ")
        self.check(found == self.truth["pages"][project], "%s: %d files" % (path, found))
        status, _, _ = await self.timed(path, {**headers, "If-None-Match": got["etag"]})
        self.check(status == 304, "%s: %d instead of 304" % (path, status))

    async def timed(self, path, headers):
        begin = time.perf_counter()
        answer = await self.link.ask(path, headers)
        self.tally["times"].append((time.time(), (time.perf_counter() - begin) * 1000))
        return answer

    async def range(self):
        big = content(self.truth["big"])
        start = self.rng.randrange(len(big) - 65536)
        status, _, body = await self.link.ask(self.truth["big_path"], {"Range": "bytes=%d-%d" % (start, start + 65535)})
        self.check(status == 206 and body == big[start:start + 65536], "range from %d: %d, %d bytes" % (start, status, len(body)))

    async def whole(self):
        path, digest = self.rng.choice(self.truth["files"]) if self.rng.random() < 0.95 else (self.truth["big_path"], self.truth["big_digest"])

        async def take(reader, length):
            found, left = hashlib.sha256(), length
            while left and (piece := await asyncio.wait_for(reader.read(1 << 18), 60)):
                found.update(piece)
                left -= len(piece)
            return found.hexdigest()
        status, _, found = await self.link.ask(path, take=take)
        self.check(status == 200 and found == digest, "%s: %d, its bytes are others" % (path, status))

    async def slow(self):
        async def take(reader, length):
            left = length
            while left and self.tally["end"] > time.time():
                piece = await asyncio.wait_for(reader.read(16384), 60)
                if not piece:
                    raise Wrong("a slow reader was cut off with %d bytes left" % left)
                left -= len(piece)
                await asyncio.sleep(0.25)
        status, _, _ = await self.link.ask(self.truth["big_path"], take=take)
        self.check(status == 200, "slow: %d" % status)
        self.link.close()

    async def broken(self):
        async def take(reader, length):
            await reader.read(self.rng.randrange(1, 200_000))
        await self.link.ask(self.rng.choice([self.truth["big_path"], "/%s/simple/page/" % DEVICE]), take=take)
        self.link.close(reset=self.rng.random() < 0.5)

    async def garbage(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        noise = self.rng.randbytes(self.rng.randrange(1, 3000))
        sent = self.rng.choice([
            noise + b"\r\n\r\n", b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % re.sub(rb"[\r\n ]", b"", noise), b"GET / HTTP/1.1\r\n\r\n",
            b"GET /%s/simple/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n" % DEVICE.encode(), b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
            b"POST /%s/resolve HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{\"requi" % DEVICE.encode(), b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
            b"GET /%s/files/%s/x.whl HTTP/1.1\r\nHost: x\r\nRange: bytes=9-1,-\r\n\r\n" % (DEVICE.encode(), b"0" * 64), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise])
        try:
            writer.write(sent)
            writer.write_eof()
            head = await asyncio.wait_for(reader.read(4096), 60)
            self.check(not re.match(rb"HTTP/1\.[01] [25]", head), "garbage %r: %r" % (sent[:60], head[:60]))
        except (ConnectionError, BrokenPipeError):
            pass                                            # it was refused in the middle of it
        finally:
            writer.close()

    async def run(self, kind):
        await asyncio.sleep(self.rng.random() * 2)
        while time.time() < self.tally["end"]:
            try:
                await getattr(self, kind)()
                self.tally["done"][kind] = self.tally["done"].get(kind, 0) + 1
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.link.close()
                if kind not in ("broken", "garbage") or isinstance(error, Wrong):
                    self.tally["wrong"].append("%s: %s: %r" % (time.strftime("%H:%M:%S"), kind, error))
                    await asyncio.sleep(1)
            await asyncio.sleep(self.rng.expovariate(2))


@functools.cache
def content(path):
    return pathlib.Path(path).read_bytes()


def clients(port, truth, end, kinds, seed, queue):
    """A process with some of the clients; puts what they found in the queue."""
    tally = {"end": end, "times": [], "done": {}, "wrong": []}

    async def all_():
        running = [asyncio.ensure_future(Client(port, truth, random.Random(seed * 1000 + i), tally).run(kind)) for i, kind in enumerate(kinds)]
        _, late = await asyncio.wait(running, timeout=end - time.time() + 90)
        for task in late:
            task.cancel()
            tally["wrong"].append("a client did not come to its end: %r" % task)
    asyncio.run(all_())
    queue.put(tally)


def serve_upstream(folder):
    """A simple index with one project, whose releases are the wheels in a folder."""
    def answer(path):
        wheels = {file: pathlib.Path(folder, file) for file in sorted(os.listdir(folder))}
        if path == "/simple/moving/":
            return "text/html", upstream.page((file, hashlib.sha256(wheel.read_bytes()).hexdigest()) for file, wheel in wheels.items())
        wheel = wheels.get(path.rsplit("/", 1)[-1])
        return wheel and ("application/octet-stream", wheel.read_bytes())
    return upstream.serve(answer)


def beside(o, data, releases, index, end, told):
    """Sync, snapshots and gc, one after the other, until the end."""
    n = 0
    while time.time() < end - 5:
        corpus.wheel(releases, "moving", "1.%d" % n)
        for command in (["sync", "--device", DEVICE, "--upstream", index, "--no-deps", "moving"], ["snapshot", "create"], ["gc", "--older-than", "0s"]):
            ended = subprocess.run([o.jetwheel, "--data", data, *command], capture_output=True, text=True, timeout=300)
            told["commands"] += 1
            if ended.returncode != 0:
                told["failed"].append("%s: code %d: %s" % (" ".join(command[:2]), ended.returncode, ended.stderr[-300:]))
        status, _, body = lib.get("http://127.0.0.1:%d/%s/simple/moving/" % (o.port, DEVICE), Accept=lib.HTML)
        if status != 200 or b"moving-1.%d-" % n not in body:
            told["failed"].append("release 1.%d is not listed after its sync: %d" % (n, status))
        n += 1
        time.sleep(min(15, max(0, end - time.time())))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--clients", type=int, default=200)
    p.add_argument("--wheels", type=int, default=2_000)
    p.add_argument("--big", type=int, default=100, help="MB of the big wheel")
    p.add_argument("--jetwheel", help="the binary; else a release build is made")
    o = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not o.jetwheel:
        subprocess.run([os.environ.get("CARGO", "cargo"), "build", "--release", "--locked", "-q"], cwd=ROOT, check=True)
        o.jetwheel = str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/jetwheel")
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as scratch:
        shared, filling, data, releases = (os.path.join(scratch, f) for f in ("shared", "filling", "data", "releases"))
        os.makedirs(releases)
        corpus.make(shared, filling, o.wheels, o.wheels // 2, o.big)
        subprocess.run([o.jetwheel, "--data", data, "add", shared, filling], check=True, capture_output=True)
        digest = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()
        paths = {path.name: (path, digest(path)) for folder in (shared, filling) for path in pathlib.Path(folder).iterdir()}
        pages, files = {}, []
        for name, (_, sha256) in paths.items():
            project = name.split("-")[0]
            pages[project] = pages.get(project, 0) + 1
            files.append(("/%s/files/%s/%s" % (DEVICE, sha256, name), sha256))
        big, big_digest = paths["big-1.0-py3-none-any.whl"]
        truth = {"pages": pages, "files": files, "big": str(big), "big_digest": big_digest, "big_path": "/%s/files/%s/%s" % (DEVICE, big_digest, big.name)}
        o.port = lib.free_port()
        log = os.path.join(scratch, "log")
        server = lib.spawn([o.jetwheel, "--data", data, "serve", "--listen", "127.0.0.1:%d" % o.port], log)
        try:
            lib.wait_for("http://127.0.0.1:%d/%s/simple/page/" % (o.port, DEVICE), server)
            sys.exit(soak(o, server, truth, data, releases, log))
        finally:
            lib.stop(server)


def soak(o, server, truth, data, releases, log):
    begin = time.time()
    end = begin + o.minutes * 60
    kinds = [kind for kind, share in KINDS for _ in range(o.clients * share // 100)]
    parts, queue = [[k for k in kinds if k == "page"], [k for k in kinds if k != "page"]], multiprocessing.Queue()
    running = [multiprocessing.Process(target=clients, args=(o.port, truth, end, part, seed, queue)) for seed, part in enumerate(parts)]
    for process in running:
        process.start()
    told = {"commands": 0, "failed": []}
    other = threading.Thread(target=beside, args=(o, data, releases, serve_upstream(releases), end, told), daemon=True)
    other.start()
    memory = []
    while time.time() < end and server.poll() is None:
        memory.append((time.time() - begin, *lib.memory_mib(server.pid)))
        time.sleep(2)
    tallies = [queue.get(timeout=150) for _ in running]
    for process in running:
        process.join(30)
    other.join(320)
    cpu = lib.cpu_s(server.pid)
    done = {kind: sum(t["done"].get(kind, 0) for t in tallies) for kind, _ in KINDS}
    times = [x for t in tallies for x in t["times"]]
    wrong = [w for t in tallies for w in t["wrong"]] + told["failed"]
    if server.poll() is not None:
        wrong.append("the mirror ended with code %d" % server.returncode)
    lib.stop(server)                                        # it writes its log out
    with open(log, errors="replace") as lines:
        # A path may hold any word.
        is_request = lambda line: "jetwheel::server::log: request" in line
        defects = [line.strip()[:300] for line in lines if (" status=5" in line if is_request(line) else re.search("ERROR|panicked|left out", line))]
    quarter = lambda a, b: statistics.median([m[2] for m in memory if a <= m[0] / (o.minutes * 60) <= b] or [0])
    early, late = quarter(0.25, 0.5), quarter(0.75, 1)
    print("%d clients, %g minutes: %s; %d commands beside" % (len(kinds), o.minutes, ", ".join("%s %d" % d for d in done.items()), told["commands"]))
    print("pages: p50 %.1f ms, p99 %.1f ms, most %.0f ms" % (percentile([t for _, t in times], 0.5), percentile([t for _, t in times], 0.99), max(t for _, t in times)))
    minutes = sorted({int((at - begin) / 60) for at, _ in times})
    print("pages, p99 of each minute, ms: %s" % " ".join("%.0f" % percentile([t for at, t in times if int((at - begin) / 60) == m], 0.99) for m in minutes))
    print("anonymous memory, MiB: second quarter %.1f, last quarter %.1f, most %.1f; resident at the end %.1f; CPU %.1f s"
          % (early, late, max(m[2] for m in memory), memory[-1][1], cpu))
    grew = late - early > GROWTH_MIB
    print("wrong answers and failed commands: %d; defects in the log: %d; memory %s" % (len(wrong), len(defects), "GREW" if grew else "flat"))
    for line in (wrong + defects)[:20]:
        print("  " + line)
    reached = lib.Goals()
    reached.add("wrong answers and failed commands", len(wrong), most=0)
    reached.add("defects in the log", len(defects), most=0)
    reached.add("anonymous memory, last quarter more than the second, MiB", late - early, most=GROWTH_MIB)
    found = {"clients": len(kinds), "minutes": o.minutes, "turns": done, "commands": told["commands"], "cpu": cpu, "anonymous": [early, late],
             "pages_ms": {"p50": percentile([t for _, t in times], 0.5), "p99": percentile([t for _, t in times], 0.99), "most": max(t for _, t in times)}}
    return reached.end("soak", found)


if __name__ == "__main__":
    main()
