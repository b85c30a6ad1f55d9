#!/usr/bin/env python3
"""A mirror with many wheels: first answer after the start, idle memory, and the server's CPU per project page.

  tests/bench/catalogue.py [--wheels 10000] [--page 1000] [--requests 2000] [--data DIR] [--jetwheel PATH]

Makes small wheels (tests/support/mkwheel.py), takes them in with `jetwheel add`, and serves them on the loopback. --data keeps
the data folder, so that a second run needs no new one. CPU is the server's own, from the kernel; wall times need a quiet machine.
"""
import argparse, http.client, os, pathlib, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.dont_write_bytecode = True
import mkwheel

DEVICES = ["orin-jp6.2", "thor-jp7.0", "orin-jp7.2", "xavier-jp5.1.2", "spark-cuda13.0"]
JSON = "application/vnd.pypi.simple.v1+json"
BIG = "page-of-many"


def make(folder, wheels, page):
    """`page` files of one project, and projects of 100 files for the rest; each with code for Orin and for Thor."""
    elf = lambda name: {"path": name + "/_C.so", "soname": "_C.so", "glibc": "2.17", "cuda": "12.9", "payload": "bare",
                        "fatbins": [["sm_72", "sm_87", "sm_90", "sm_101", "sm_121"]]}
    for i in range(wheels):
        name, version = (BIG, i) if i < page else ("project-%04d" % ((i - page) // 100), i % 100)
        name = name.replace("-", "_")
        mkwheel.build({"filename": "%s-1.%d-py3-none-manylinux_2_17_aarch64.whl" % (name, version), "requires_python": ">=3.8",
                       "requires_dist": ["numpy>=1.20"], "elfs": [elf(name)]}, folder)


def cpu_s(pid):
    """CPU seconds of all threads, in nanoseconds' resolution where the kernel tells it."""
    try:
        tasks = ["/proc/%d/task/%s/schedstat" % (pid, t) for t in os.listdir("/proc/%d/task" % pid)]
        return sum(int(open(t).read().split()[0]) for t in tasks) / 1e9
    except (OSError, IndexError):
        fields = open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid):
    line = next(line for line in open("/proc/%d/status" % pid) if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


class Server:
    def __init__(self, o):
        self.begin = time.perf_counter()
        self.process = subprocess.Popen([o.jetwheel, "--data", o.data, "serve", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, env={**os.environ, "RUST_LOG": "warn"}, text=True)
        for line in self.process.stderr:
            if "listening on http://" in line:
                self.port = int(line.split("listening on http://", 1)[1].split("/")[0].rsplit(":", 1)[1])
                break
        else:
            sys.exit("the mirror ended with code %d before it listened" % self.process.wait())
        self.pid = self.process.pid
        self.http = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def get(self, path, **headers):
        self.http.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = self.http.getresponse()
        return answer.status, answer.headers, answer.read()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def first_answer(o):
    """Seconds from the start to the whole big page, and the memory of a server that has answered once."""
    server = Server(o)
    status, _, body = server.get("/%s/simple/%s/" % (DEVICES[0], BIG), Accept="text/html")
    seconds = time.perf_counter() - server.begin
    if status != 200 or body.count(b"<a ") != o.page:
        sys.exit("the page of %s: status %d, %d links, expected %d" % (BIG, status, body.count(b"<a "), o.page))
    time.sleep(1)                                        # idle memory is that of a server which had a second to settle
    rss = rss_mib(server.pid)
    server.stop()
    return seconds, rss


def per_request(server, requests, path, status, **headers):
    """CPU milliseconds of the server per request, over one connection."""
    for _ in range(20):
        server.get(path, **headers)
    before = cpu_s(server.pid)
    for _ in range(requests):
        got, _, body = server.get(path, **headers)
        if got != status:
            sys.exit("%s: status %d, expected %d" % (path, got, status))
    return (cpu_s(server.pid) - before) / requests * 1000, len(body)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--wheels", type=int, default=10_000)
    p.add_argument("--page", type=int, default=1_000)
    p.add_argument("--requests", type=int, default=2_000)
    p.add_argument("--starts", type=int, default=5)
    p.add_argument("--data")
    p.add_argument("--jetwheel")
    o = p.parse_args()
    if not o.jetwheel:
        subprocess.run([os.environ.get("CARGO", "cargo"), "build", "--release", "--locked", "-q"], cwd=ROOT, check=True)
        o.jetwheel = str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/jetwheel")
    scratch = tempfile.TemporaryDirectory(prefix="bench-catalogue-")
    o.data = o.data or os.path.join(scratch.name, "data")
    rows = []
    if not os.path.exists(os.path.join(o.data, ".bench-%d-%d" % (o.wheels, o.page))):
        begin = time.perf_counter()
        make(os.path.join(scratch.name, "wheels"), o.wheels, o.page)
        made = time.perf_counter() - begin
        subprocess.run([o.jetwheel, "--data", o.data, "add", os.path.join(scratch.name, "wheels")], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin - made
        print("%d wheels made in %.0f s; `add` took %.1f s, %.2f ms each" % (o.wheels, made, seconds, seconds / o.wheels * 1000))
        pathlib.Path(o.data, ".bench-%d-%d" % (o.wheels, o.page)).touch()

    starts = [first_answer(o) for _ in range(o.starts)]
    rows.append(("start to the first whole page, s (median of %d)" % o.starts, statistics.median(s for s, _ in starts), 0.5))
    rows.append(("memory, idle after the first answer, MiB", statistics.median(m for _, m in starts), 80))
    server = Server(o)
    big = "/%s/simple/%s/" % (DEVICES[0], BIG)
    server.get("/%s/simple/" % DEVICES[0])
    for device in DEVICES:
        before = cpu_s(server.pid)
        server.get("/%s/simple/%s/" % (device, BIG), Accept="text/html")
        rows.append(("first page of %d files for %s, CPU ms" % (o.page, device), (cpu_s(server.pid) - before) * 1000, None))
    etag = server.get(big, Accept="text/html")[1].get("ETag")
    for what, goal, status, headers in (
            ("HTML", 1, 200, {"Accept": "text/html"}),
            ("HTML, gzip", 1, 200, {"Accept": "text/html", "Accept_Encoding": "gzip"}),
            ("JSON", 1, 200, {"Accept": JSON}),
            ("JSON, gzip", 1, 200, {"Accept": JSON, "Accept_Encoding": "gzip"}),
            ("unchanged (304)", 0.15, 304, {"Accept": "text/html", "If_None_Match": etag or "*"})):
        cost, size = per_request(server, o.requests, big, status, **headers)
        rows.append(("page of %d files, %s, %d bytes, CPU ms" % (o.page, what, size), cost, goal))
    time.sleep(1)
    rows.append(("memory, idle after all requests, MiB", rss_mib(server.pid), 80))
    server.stop()
    scratch.cleanup()

    width = max(len(what) for what, _, _ in rows)
    for what, found, goal in rows:
        shown = "" if goal is None else "goal <= %-5g %s" % (goal, "yes" if found <= goal else "NO")
        print("%s  %9.3f  %s" % (what.ljust(width), found, shown))
    sys.exit(0 if all(goal is None or found <= goal for _, found, goal in rows) else 1)


if __name__ == "__main__":
    main()
