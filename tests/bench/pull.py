#!/usr/bin/env python3
"""Pull-through: many clients ask at once for one wheel that the mirror does not have.

  tests/bench/pull.py [--jetwheel PATH] [--clients 16] [--size 500] [--rate 50] [--latency 50] [--rounds 3]

A wheel of --size MB lies behind an upstream that thinks for --latency ms and then gives each connection --rate MB/s (0: as much as
it can). One client fetches it directly; then --clients fetch it through an empty mirror, once with known facts and once with
unknown ones. Said are the requests that reached the upstream, the time to the first byte and to the last, and the mirror's CPU and
memory; exit code 1 if a goal is missed. The figures go to target/bench/pull.json. Needs curl.
"""
import argparse, base64, hashlib, http.server, json, os, pathlib, re, statistics, subprocess, sys, tempfile, threading, time, zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "tests/bench/peers"))
sys.dont_write_bytecode = True
import lib, mkwheel

NAME = "bigpull-1.0-py3-none-manylinux_2_17_aarch64.whl"
# The wheel needs glibc 2.35: JetPack 5 refuses it by its content, so that asking for it there makes its facts known.
ADMITS, REFUSES = "orin-jp6.2", "orin-jp5.1.2"


def make(folder, size):
    """A wheel with code for Orin and `size` bytes that do not compress."""
    small = folder / "small"
    mkwheel.build({"filename": NAME, "elfs": [{"path": "bigpull/_C.so", "soname": "_C.so", "glibc": "2.35", "cuda": "12.6",
                                              "payload": "bare", "fatbins": [["sm_87"]]}]}, small)
    digest, record, block = hashlib.sha256(), None, os.urandom(1 << 20)
    with zipfile.ZipFile(small / NAME) as old, zipfile.ZipFile(folder / NAME, "w") as new:
        for info in old.infolist():
            if info.filename.endswith("/RECORD"):
                record = info.filename, old.read(info).decode()
            else:
                new.writestr(info.filename, old.read(info))
        with new.open(zipfile.ZipInfo("bigpull/data.bin"), "w", force_zip64=True) as out:
            for at in range(0, size, len(block)):
                piece = at.to_bytes(8, "little") + block[8 : min(len(block), size - at)]
                digest.update(piece)
                out.write(piece)
        hashed = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
        new.writestr(record[0], "bigpull/data.bin,sha256=%s,\n" % hashed + record[1])
    return folder / NAME


class Upstream(http.server.ThreadingHTTPServer):
    """A simple index with one file, paced; counts the requests for it."""

    daemon_threads, request_queue_size = True, 128

    def __init__(self, file, rate, latency):
        self.file, self.rate, self.latency, self.gets = file, rate, latency, 0
        self.sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path):
        return "http://127.0.0.1:%d%s" % (self.server_address[1], path)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        up = self.server
        time.sleep(up.latency)
        if self.path == "/simple/bigpull/":
            body = ('<a href="/f/%s#sha256=%s">%s</a>' % (NAME, up.sha256, NAME)).encode()
            return self.head(len(body), "text/html") or self.wfile.write(body)
        if self.path != "/f/" + NAME:
            self.send_error(404)
            return None
        up.gets += 1
        size, at, begin = up.file.stat().st_size, 0, time.monotonic()
        self.head(size, "application/octet-stream")
        self.wfile.flush()
        with up.file.open("rb") as file:
            while at < size:
                sent = os.sendfile(self.connection.fileno(), file.fileno(), at, 1 << 20)
                if not sent:
                    break
                at += sent
                if up.rate:
                    time.sleep(max(0, at / up.rate - (time.monotonic() - begin)))

    def head(self, length, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"1"')
        self.end_headers()


def client(url, begin, rows):
    """One client, which comes again when it is told to, as pip and uv do."""
    form = "%{http_code} %{size_download} %{time_starttransfer} %header{retry-after}"
    run = ["curl", "-s", "--noproxy", "*", "--max-time", "300", "-o", "/dev/null", "-w", form, url]
    for _ in range(10):
        before = time.monotonic() - begin
        code, size, first, *again = subprocess.run(run, stdout=subprocess.PIPE, text=True).stdout.split()
        if code != "503":
            break
        time.sleep(float(again[0]))
    rows.append((int(code), int(size), before + float(first)))


def fleet(url, clients):
    """Status, size and time to the first byte of each client, and the time until all have all."""
    rows, begin = [], time.monotonic()
    threads = [threading.Thread(target=client, args=(url, begin, rows)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows, time.monotonic() - begin


class Mirror:
    def __init__(self, jetwheel, data, upstream):
        run = [jetwheel, "--data", data, "serve", "--listen", "127.0.0.1:0", "--pull", "--upstream", upstream.url("/simple/")]
        self.process = subprocess.Popen(run, stderr=subprocess.PIPE, text=True, env={**os.environ, "RUST_LOG": "warn,jetwheel::cli=info"})
        for line in self.process.stderr:
            if found := re.search(r"listening on (http://\S+)", line):
                self.url = found[1].rstrip("/")
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.sha256 = upstream.sha256

    def wheel(self, device):
        return "%s/%s/files/%s/%s" % (self.url, device, self.sha256, NAME)

    def end(self):
        text = open("/proc/%d/status" % self.process.pid).read()
        peak = int(re.search(r"VmHWM:\s+(\d+)", text)[1]) / 1024
        self.process.terminate()
        self.process.wait()
        return peak


def through(jetwheel, upstream, clients, known):
    with tempfile.TemporaryDirectory(prefix="bench-pull-data-") as data:
        mirror = Mirror(jetwheel, data, upstream)
        try:
            if known:
                (refused,), _ = fleet(mirror.wheel(REFUSES), 1)
                assert refused[0] == 403, refused
            upstream.gets, cpu = 0, lib.cpu_s(mirror.process.pid)
            rows, wall = fleet(mirror.wheel(ADMITS), clients)
            cpu = lib.cpu_s(mirror.process.pid) - cpu
        finally:
            peak = mirror.end()
        size = upstream.file.stat().st_size
        whole = sum(row[0] == 200 and row[1] == size for row in rows)
        return {"gets": upstream.gets, "whole": whole, "first": max(r[2] for r in rows), "usual": statistics.median(r[2] for r in rows),
                "total": wall, "cpu": cpu, "peak": peak}


def measure(jetwheel, rounds, clients=16, size=500, rate=50, latency=50):
    """Medians over the rounds of the figures of one direct client, and of many with known and with unknown facts."""
    with tempfile.TemporaryDirectory(prefix="bench-pull-") as folder:
        folder = pathlib.Path(folder)
        upstream = Upstream(make(folder, size * 10**6), rate * 10**6, latency / 1000)
        direct, known, unknown = [], [], []
        for n in range(rounds):
            ((code, got, first),), wall = fleet(upstream.url("/f/" + NAME), 1)
            assert code == 200 and got == upstream.file.stat().st_size, (code, got)
            direct.append({"first": first, "total": wall})
            known.append(through(jetwheel, upstream, clients, True))
            unknown.append(through(jetwheel, upstream, clients, False))
            print("%s pull-through: round %d of %d" % (time.strftime("%H:%M:%S"), n + 1, rounds), file=sys.stderr, flush=True)
        upstream.shutdown()
    medians = lambda rows: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    found = {"clients": clients, "direct": medians(direct)}
    for name, rows in (("known", known), ("unknown", unknown)):
        # Of what must hold for everybody, the worst round counts.
        found[name] = medians(rows) | {"gets": max(r["gets"] for r in rows), "whole": min(r["whole"] for r in rows)}
    return found


def show(found):
    direct = found["direct"]
    rows = [("1 client, directly", None, None, direct["first"], direct["first"], direct["total"], 1.0, None, None)]
    for name in ("known", "unknown"):
        of = found[name]
        rows.append(("%d clients, %s facts" % (found["clients"], name), of["gets"], of["whole"], of["usual"], of["first"], of["total"],
                     of["total"] / direct["total"], of["cpu"], of["peak"]))
    lib.table("Pull-through of one wheel", ["", "upstream GETs", "whole", "first byte s", "of the last", "all have all s", "x direct", "CPU s", "peak MiB"], rows)


def goals(found, reached):
    """Those of issue 5; of the first byte the last client's counts."""
    direct, known, unknown, clients = (found[k] for k in ("direct", "known", "unknown", "clients"))
    reached.add("pull, known facts: upstream GETs, most", known["gets"], most=1)
    reached.add("pull, known facts: clients that got all", known["whole"], least=clients)
    reached.add("pull, known facts: last first byte x direct", known["first"] / direct["first"], most=2)
    reached.add("pull, known facts: total x direct", known["total"] / direct["total"], most=1.2)
    reached.add("pull, unknown facts: upstream GETs, most", unknown["gets"], most=1)
    reached.add("pull, unknown facts: clients that got all", unknown["whole"], least=clients)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--jetwheel", default=str(ROOT / "target/release/jetwheel"))
    args.add_argument("--clients", type=int, default=16)
    args.add_argument("--size", type=int, default=500)
    args.add_argument("--rate", type=int, default=50)
    args.add_argument("--latency", type=int, default=50)
    args.add_argument("--rounds", type=int, default=3)
    args = args.parse_args()
    found = measure(args.jetwheel, args.rounds, args.clients, args.size, args.rate, args.latency)
    show(found)
    reached = lib.Goals()
    goals(found, reached)
    sys.exit(reached.end("pull", found))


if __name__ == "__main__":
    main()
