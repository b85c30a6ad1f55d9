#!/usr/bin/env python3
"""Pull-through: many clients ask at once for one wheel that the mirror does not have.

  tests/bench/pull.py [--jetwheel PATH] [--clients 16] [--size 500] [--rate 50] [--latency 50] [--rounds 3]

A wheel of --size MB lies behind an upstream that thinks for --latency ms and then gives each connection --rate MB/s (0: as much as
it can). One client fetches it directly; then --clients fetch it through an empty mirror, once with known facts and once with
unknown ones. Said are the requests that reached the upstream, the time to the first byte and to the last, and the mirror's CPU and
memory. Needs curl.
"""
import argparse, base64, hashlib, http.server, json, os, pathlib, re, statistics, subprocess, sys, tempfile, threading, time, zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "tests/bench"))
sys.dont_write_bytecode = True
import mkwheel
from catalogue import cpu_s

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
    with tempfile.TemporaryDirectory() as data:
        mirror = Mirror(jetwheel, data, upstream)
        if known:
            (refused,), _ = fleet(mirror.wheel(REFUSES), 1)
            assert refused[0] == 403, refused
        upstream.gets, cpu = 0, cpu_s(mirror.process.pid)
        rows, wall = fleet(mirror.wheel(ADMITS), clients)
        cpu = cpu_s(mirror.process.pid) - cpu
        gets, size = upstream.gets, upstream.file.stat().st_size
        whole = sum(row[0] == 200 and row[1] == size for row in rows)
        return {"gets": gets, "whole": whole, "first": max(r[2] for r in rows), "usual": statistics.median(r[2] for r in rows),
                "total": wall, "cpu": cpu, "peak": mirror.end()}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--jetwheel", default=str(ROOT / "target/release/jetwheel"))
    args.add_argument("--clients", type=int, default=16)
    args.add_argument("--size", type=int, default=500)
    args.add_argument("--rate", type=int, default=50)
    args.add_argument("--latency", type=int, default=50)
    args.add_argument("--rounds", type=int, default=3)
    args = args.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        upstream = Upstream(make(folder, args.size * 10**6), args.rate * 10**6, args.latency / 1000)
        direct, known, unknown = [], [], []
        for _ in range(args.rounds):
            (row,), wall = fleet(upstream.url("/f/" + NAME), 1)
            direct.append({"first": row[2], "total": wall})
            known.append(through(args.jetwheel, upstream, args.clients, True))
            unknown.append(through(args.jetwheel, upstream, args.clients, False))
    median = lambda rows, key: statistics.median(row[key] for row in rows)
    first, total = median(direct, "first"), median(direct, "total")
    print("direct, 1 client: first byte %.3f s, total %.2f s" % (first, total))
    for name, rows in (("known facts", known), ("unknown facts", unknown)):
        print("%s, %d clients: whole %s, upstream GETs %s, first byte %.3f s (%.2f x), of the last %.3f s, total %.2f s (%.2f x), CPU %.2f s, "
              "peak %.0f MiB" % (
                  name, args.clients, [r["whole"] for r in rows], [r["gets"] for r in rows], median(rows, "usual"),
                  median(rows, "usual") / first, median(rows, "first"), median(rows, "total"), median(rows, "total") / total, median(rows, "cpu"),
                  median(rows, "peak")))


if __name__ == "__main__":
    main()
