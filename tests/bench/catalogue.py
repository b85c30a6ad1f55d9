#!/usr/bin/env python3
"""A mirror with many wheels: first answer after the start, idle memory, the server's CPU per project page, and what one more change costs.

  tests/bench/catalogue.py [--wheels 10000] [--page 1000] [--requests 2000] [--catalogue sled] [--data DIR] [--jetwheel PATH]

Makes small wheels (tests/support/mkwheel.py), takes them in with `jetwheel add`, and serves them on the loopback. With --catalogue postgres
the catalogue is in a PostgreSQL server of its own; its CPU is told as well. Then one more wheel comes, by `add` and by a sync from a simple index
on the loopback that lists all of them. --data keeps the data folder (and beside it DIR.postgres), so that a second run needs no new one. CPU is
from the kernel; wall times need a quiet machine.
"""
import argparse, hashlib, http.client, json, os, pathlib, signal, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
sys.dont_write_bytecode = True
import mkwheel, upstream
from parts import Postgres, lib, stop_all

DEVICES = ["orin-jp6.2", "thor-jp7.0", "orin-jp7.2", "xavier-jp5.1.2", "spark-cuda13.0"]
JSON = "application/vnd.pypi.simple.v1+json"
BIG = "page-of-many"


def build(name, version, folder):
    """A wheel with code for Orin and for Thor; yields its file name and digest."""
    name = name.replace("-", "_")
    elf = {"path": name + "/_C.so", "soname": "_C.so", "glibc": "2.17", "cuda": "12.9", "payload": "bare",
           "fatbins": [["sm_72", "sm_87", "sm_90", "sm_101", "sm_121"]]}
    file = "%s-1.%d-py3-none-manylinux_2_17_aarch64.whl" % (name, version)
    mkwheel.build({"filename": file, "requires_python": ">=3.8", "requires_dist": ["numpy>=1.20"], "elfs": [elf]}, folder)
    return file, hashlib.sha256(pathlib.Path(folder, file).read_bytes()).hexdigest()


def make(folder, wheels, page):
    """`page` files of one project, and projects of 100 files for the rest; yields their names and digests by project."""
    made = {}
    for i in range(wheels):
        name, version = (BIG, i) if i < page else ("project-%04d" % ((i - page) // 100), i % 100)
        made.setdefault(name, []).append(build(name, version, folder))
    return made


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
                                        stdout=subprocess.DEVNULL, env=o.env, text=True)
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


class Site:
    """Where the mirror of a bench keeps what it has."""

    def __init__(self, o, scratch):
        self.o, self.scratch = o, scratch
        o.data = o.data or os.path.join(scratch, "data")
        o.env = {**os.environ, "RUST_LOG": "warn"}
        self.postgres, self.filled = None, pathlib.Path(o.data, ".bench-%d-%d" % (o.wheels, o.page))
        if o.catalogue == "postgres":
            self.postgres = Postgres(o.data + ".postgres", os.path.join(scratch, "postgres.log")).start()
            config = os.path.join(scratch, "jetwheel.toml")
            pathlib.Path(config).write_text('catalogue = "%s"\n' % self.postgres.address())
            o.env["JETWHEEL_CONFIG"] = config

    def run(self, *words):
        """Seconds that a command takes, CPU seconds of it, and of the database meanwhile; its memory in MiB (this script's, where that
        is more); and what it prints."""
        database = lambda: lib.cpu_s(self.postgres.process.pid) if self.postgres else 0
        before, begin = database(), time.perf_counter()
        with open(os.path.join(self.scratch, "said"), "w+") as said:
            process = subprocess.Popen([self.o.jetwheel, "--data", self.o.data, "--format", "json", *words], env=self.o.env, stdout=said, stderr=said)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            wall = time.perf_counter() - begin
            said.seek(0)
            text = said.read()
        if process.returncode:
            sys.exit("%s: code %d: %s" % (" ".join(words), process.returncode, text[-2000:]))
        return wall, used.ru_utime + used.ru_stime, database() - before, used.ru_maxrss / 1024, text

    def fill(self):
        if self.filled.exists():
            return json.loads(self.filled.read_text())
        begin, folder = time.perf_counter(), os.path.join(self.scratch, "wheels")
        made = make(folder, self.o.wheels, self.o.page)
        print("%d wheels made in %.0f s" % (self.o.wheels, time.perf_counter() - begin), flush=True)
        wall, cpu, database, memory, _ = self.run("add", folder)
        per_wheel = lambda seconds: seconds / self.o.wheels * 1000
        print("`add` took %.1f s, %.2f ms each; CPU %.2f ms each, of the database %.2f ms; memory %.0f MiB"
              % (wall, per_wheel(wall), per_wheel(cpu), per_wheel(database), memory), flush=True)
        self.filled.write_text(json.dumps(made))
        return made

    def bytes(self):
        """What the catalogue and the list of one snapshot take."""
        disk = lambda name: sum(path.stat().st_size for path in pathlib.Path(self.o.data, name).rglob("*") if path.is_file())
        if not self.postgres:
            snapshots = [path.stat().st_size for path in pathlib.Path(self.o.data, "snapshots").rglob("*") if path.is_file()]
            return [("catalogue", disk("catalogue")), ("largest file of a snapshot", max(snapshots, default=0))]
        tables = self.postgres.sql("SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
                                   "'public'::regnamespace AND pg_total_relation_size(oid) > 1000000 ORDER BY 2 DESC").split()
        return [("database", int(self.postgres.sql("SELECT pg_database_size(current_database())")))] + [
            ("table " + name, int(size)) for name, size in (line.split("|") for line in tables)]


def changes(site, made):
    """What one more change costs: rows of name, and what `Site.run` has."""
    o, wheels = site.o, os.path.join(site.scratch, "more")

    def answer(path):
        if path == "/simple/":
            return "text/html", "".join('<a href="%s/">%s</a>' % (name, name) for name in made).encode()
        if path.startswith("/simple/"):
            rows = made.get(path.split("/")[2])
            return rows and ("text/html", upstream.page(rows))
        return "application/octet-stream", pathlib.Path(wheels, path.rsplit("/", 1)[-1]).read_bytes()
    sync = ("sync", "--device", DEVICES[0], "--upstream", upstream.serve(answer), "--all", "--keep", str(o.wheels))
    number = 1 + int(time.time())                           # versions that no run before has made
    build("by-add", number, wheels)
    yield "`add` of one more wheel, with its snapshot", site.run("add", wheels)
    yield "`snapshot create`", site.run("snapshot", "create", "--name", "bench-%d" % number)
    yield "`gc`", site.run("gc")
    yield "first `sync --all`: all are held, none was seen there", site.run(*sync)
    yield "the same again: nothing changed", site.run(*sync)
    made[BIG].append(build(BIG, number, wheels))
    one_more = site.run(*sync)
    if '"downloads": 1,' not in one_more[-1]:
        sys.exit("the sync of one more release: %s" % one_more[-1][-2000:])
    yield "the same again: one more release", one_more
    site.filled.write_text(json.dumps(made))
    yield "`gc` after these", site.run("gc")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        bench()
    finally:
        stop_all()


def bench():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--wheels", type=int, default=10_000)
    p.add_argument("--page", type=int, default=1_000)
    p.add_argument("--requests", type=int, default=2_000)
    p.add_argument("--starts", type=int, default=5)
    p.add_argument("--catalogue", choices=["sled", "postgres"], default="sled")
    p.add_argument("--data")
    p.add_argument("--jetwheel")
    o = p.parse_args()
    if not o.jetwheel:
        subprocess.run([os.environ.get("CARGO", "cargo"), "build", "--release", "--locked", "-q"], cwd=ROOT, check=True)
        o.jetwheel = str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/jetwheel")
    scratch = tempfile.TemporaryDirectory(prefix="bench-catalogue-")
    os.chmod(scratch.name, 0o755)                           # PostgreSQL runs as another user
    site = Site(o, scratch.name)
    made, rows = site.fill(), []
    o.page = len(made[BIG])

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
    for what, (wall, cpu, database, memory, _) in changes(site, made):
        print("%s: %.2f s, CPU %.2f s, of the database %.2f s; memory %.0f MiB" % (what, wall, cpu, database, memory), flush=True)
    for what, size in site.bytes():
        print("%s: %.1f MB" % (what, size / 1e6))

    width = max(len(what) for what, _, _ in rows)
    for what, found, goal in rows:
        shown = "" if goal is None else "goal <= %-5g %s" % (goal, "yes" if found <= goal else "NO")
        print("%s  %9.3f  %s" % (what.ljust(width), found, shown))
    sys.exit(0 if all(goal is None or found <= goal for _, found, goal in rows) else 1)


if __name__ == "__main__":
    main()
