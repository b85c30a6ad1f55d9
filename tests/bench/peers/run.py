#!/usr/bin/env python3
"""jetwheel beside its peers in one run: nginx with the same bytes as files (the limit), devpi-server, pypiserver and proxpi.

  tests/bench/peers/run.py [--work DIR] [--servers nginx,jetwheel] [--measures pages,files,ranges,tls,start,clients,through] [--rounds 5]

Installs what it needs: nginx, wrk and curl with apt-get where they are missing, the peers and uv with pip into DIR/venvs. --work
keeps wheels, uploads and venvs for the next run. Servers take turns, cell by cell and round by round, so that a ratio compares what
was measured seconds apart; figures are medians over the rounds. CPU is the server's own: it holds on a busy machine, wall times do not.
The CPU of the load tells what bounds a fast server: both share the cores. `others` is the share of all cores that neither took. The
last table holds the goals; exit code 1 if one is missed. All figures go to target/bench/peers.json. Without --work, nothing else is left.
"""
import argparse, contextlib, os, pathlib, shutil, signal, statistics, subprocess, sys, tempfile, time

sys.dont_write_bytecode = True
import corpus, lib, servers

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/bench"))
import pull

RANGES = """
math.randomseed(7)
request = function()
  local o = math.random(0, %d)
  return wrk.format("GET", nil, {["Range"] = "bytes=" .. o .. "-" .. (o + 65535)})
end
"""
VENVS = {"uv": ["uv", "pip"], "devpi": ["devpi-server"], "proxpi": ["proxpi", "gunicorn"],
         "pypiserver": ["pypiserver", "gunicorn", "watchdog<2.2"]}      # with a newer watchdog every read of a file drops its cache


def install(o):
    missing = [p for p, c in (("nginx-light", "nginx"), ("wrk", "wrk"), ("curl", "curl")) if not shutil.which(c)]
    if missing:
        subprocess.run(["apt-get", "update", "-q"], check=True)
        subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing], check=True,
                       env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"})
    for name, packages in VENVS.items():
        venv = pathlib.Path(o.venvs, name)
        if (name == "uv" or name in o.servers) and not (venv / ".ready").exists():
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
            subprocess.run([venv / "bin/pip", "-q", "--disable-pip-version-check", "install", "--upgrade", *packages], check=True)
            (venv / ".ready").touch()


def turns(o, running, cell, measure, rows, rounds=0):
    """Every server in turn, round after round, and every other round in the other order: rows of {server, cell, figures}. Of more
    rounds than asked for, those beyond are between the mirror and the limit."""
    for n in range(max(o.rounds, rounds)):
        for server in running if n % 2 == 0 else running[::-1]:
            if n >= o.rounds and server.name not in ("nginx", "jetwheel"):
                continue
            lib.drain(server.process.pid)
            try:
                found = measure(server)
            except Exception as error:
                print("%s, %s: %r" % (server.name, cell, error), file=sys.stderr)
                continue
            if found:
                rows.append({"server": server.name, "cell": cell, "round": n, **found})
        print("%s %s: round %d of %d" % (time.strftime("%H:%M:%S"), cell, n + 1, max(o.rounds, rounds)), file=sys.stderr, flush=True)


def page(o, kind):
    """The page of many files at 32 connections, in one of its forms."""
    accept = lib.JSON if "JSON" in kind else lib.HTML
    more = {"Accept-Encoding": "gzip"} if "gzip" in kind else {}

    def of(server):
        url, headers = server.index + "page/", {"Accept": accept, **more}
        status, got, body = lib.get(url, **{k.replace("-", "_"): v for k, v in headers.items()})
        if status != 200 or ("gzip" in kind) != (got.get("content-encoding") == "gzip") or ("JSON" in kind) != ("json" in got.get("content-type", "")):
            return None
        if "304" in kind:
            if "etag" not in got:
                return None
            headers["If-None-Match"] = got["etag"]
            if lib.get(url, Accept=accept, If_None_Match=got["etag"])[0] != 304:
                return None
        if "anew" in kind:
            headers["Connection"] = "close"
        lib.wrk(url, 4, 1, headers)
        with lib.Cost(server.process.pid) as cost:
            r = lib.wrk(url, 32, o.seconds, headers)
        return {"rate": r["n"] / r["s"], "cpu": cost.cpu * 1e6 / r["n"], "load": cost.load * 1e6 / r["n"], "p50": r["p50"], "p99": r["p99"],
                "bad": r["bad"], "others": cost.others, "size": 0 if "304" in kind else len(body)}
    return of


def pages(o, running):
    rows = []
    for kind in ("HTML", "HTML gzip", "JSON", "JSON gzip", "304"):
        turns(o, running, kind, page(o, kind), rows)
    return rows


def file(o, clients, load):
    """The big wheel by several clients at once for some seconds."""
    def of(server):
        url = servers.links(server.index, "big")[0]
        if server.name == "proxpi":
            lib.get(url)                                # so that its cache has it
        load(url, clients, 1)
        lib.drain(server.process.pid)
        with lib.Peak(server.process.pid) as peak, lib.Cost(server.process.pid) as cost:
            size, wall, bad = load(url, clients, o.cut)
        return {"rate": size / wall / 1e6, "cpu": cost.cpu / (size / 1e9), "load": cost.load / (size / 1e9), "anonymous": peak.anonymous,
                "bad": bad, "others": cost.others}
    return of


def files(o, running):
    """One light process that reads it over and over, and a fleet of curls, cut off."""
    rows = []
    for clients in (1, 16, 64):
        turns(o, running, "%d clients" % clients, file(o, clients, lib.sink), rows)
    turns(o, running, "64 curls", file(o, 64, lib.fleet), rows)
    return rows


@contextlib.contextmanager
def store_alone(running):
    """A store has one owner."""
    ours = [server for server in running if server.name == "jetwheel"]
    for server in ours:
        server.stop()
    yield
    for server in ours:
        server.start()


def tls(o, running):
    """Page and big wheel once more, by TLS 1.3 with the same certificate; "anew" has a handshake for each request."""
    pair, rows = lib.certificate(o.work), []
    with store_alone(running):
        secure = [cls(o, pair) for cls in (servers.Nginx, servers.Jetwheel)]
        try:
            for server in secure:
                server.start()
            for version in ("--http1.1", "--http2"):
                def curls(url, clients, seconds):
                    return lib.fleet(url, clients, seconds, version)
                for clients in (1, 16):
                    turns(o, secure, "%d curls %s" % (clients, version), file(o, clients, curls), rows)
            for kind in ("HTML", "HTML gzip", "JSON gzip", "304", "304 anew"):
                turns(o, secure, kind, page(o, kind), rows)
        finally:
            for server in secure:
                if hasattr(server, "process"):
                    server.stop()
    return rows


def ranges(o, running):
    """Random ranges of 64 KiB of the big wheel."""
    def measure(connections):
        def of(server):
            url = servers.links(server.index, "big")[0]
            if server.name == "proxpi" or lib.get(url, Range="bytes=1000-66535")[0] != 206:
                return None                                 # proxpi reads the file from its start each time
            size = int(lib.get(url, Range="bytes=0-0")[1]["content-range"].rsplit("/")[-1])
            with lib.Cost(server.process.pid) as cost:
                r = lib.wrk(url, connections, o.seconds, {}, RANGES % (size - 65537))
            return {"rate": r["n"] / r["s"], "cpu": cost.cpu * 1e6 / r["n"], "load": cost.load * 1e6 / r["n"], "p50": r["p50"], "p99": r["p99"],
                    "bad": r["bad"], "others": cost.others}
        return of
    rows = []
    for connections in (1, 16):
        turns(o, running, "%d connections" % connections, measure(connections), rows)
    return rows


def start(o, running):
    """From the start of the process to the first right page, and memory a second later."""
    rows = []
    with store_alone(running):
        for n in range(max(o.rounds, 5)):
            rows += [first_page(o, cls(o), n) for cls in (servers.Nginx, servers.Jetwheel)]
    return rows


def first_page(o, server, n):
    server.port = lib.free_port()
    begin = time.perf_counter()
    server.process = server.spawn()
    try:
        body = lib.wait_for("http://127.0.0.1:%d%spage/" % (server.port, server.path), server.process, every=0.002)
        seconds, cpu = time.perf_counter() - begin, lib.cpu_s(server.process.pid)
        if body.count(b"<a ") != o.page:
            sys.exit("%s: %d links, expected %d" % (server.name, body.count(b"<a "), o.page))
        time.sleep(1)
        resident, anonymous = lib.memory_mib(server.process.pid)
        return {"server": server.name, "cell": "start", "round": n, "rate": seconds, "cpu": cpu, "resident": resident, "anonymous": anonymous}
    finally:
        server.stop()


def clients(o, running):
    """pip and uv install a wheel and the 19 that it needs, with no cache."""
    python, uv = (os.path.join(o.venvs, "uv", "bin", p) for p in ("python", "uv"))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))} | {"PIP_CONFIG_FILE": os.devnull}

    def measure(client):
        def of(server):
            with tempfile.TemporaryDirectory(dir=o.work) as target:
                to = ["--index-url", server.index, "--no-cache-dir", "-q", "--target", target, "app"]
                command = [python, "-m", "pip", "--disable-pip-version-check", "install", *to] if client == "pip" else \
                    [uv, "pip", "install", "--no-config", "--python", python, *to]
                count = getattr(server, "requests", lambda: None)
                before = count()
                with lib.Cost(server.process.pid) as cost:
                    subprocess.run(command, check=True, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
                found = sum(name.endswith(".dist-info") for name in os.listdir(target))
            if found != 20:
                raise RuntimeError("%d of 20 are installed" % found)
            asked = None if before is None else count() - before
            return {"rate": cost.wall, "cpu": cost.cpu, "load": cost.load, "requests": asked, "others": cost.others}
        return of
    rows = []
    for client in ("pip", "uv"):
        turns(o, running, client, measure(client), rows, o.installs)
    return rows


def through(o, _running):
    """Pull-through, of jetwheel alone: what one client gets directly is the limit."""
    return pull.measure(o.jetwheel, min(o.rounds, 3))


def medians(rows):
    """{(cell, server): figures}, with ratios to nginx of the same round, the quarters of that of the rate, and that of the rate to the best peer."""
    by_round = {}
    for r in rows:
        by_round.setdefault((r["cell"], r["round"]), {})[r["server"]] = r
    cells = {}
    for turn in by_round.values():
        base = turn.get("nginx")
        best = max((r["rate"] for name, r in turn.items() if name not in ("nginx", "jetwheel")), default=None)
        for r in turn.values():
            for f in ("rate", "cpu", "load", "p99"):
                if base and r.get(f) and base.get(f):
                    r[f + "_x"] = r[f] / base[f]
            if best:
                r["best_x"] = r["rate"] / best
            cells.setdefault((r["cell"], r["server"]), []).append(r)
    found = {}
    for key, rs in cells.items():
        found[key] = {f: lib.median([r.get(f) for r in rs]) for f in {f for r in rs for f in r} - {"server", "cell", "round"}}
        found[key] |= {"bad": sum(r.get("bad", 0) for r in rs), "rounds": len(rs)}
        ratios = [r["rate_x"] for r in rs if "rate_x" in r]
        if len(ratios) > 1:
            low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
            found[key]["spread"] = "%.2f to %.2f" % (low, high)
    return found


COLUMNS = {
    "pages": ("Page of {page} files, 32 connections", [("requests/s", "rate"), ("x nginx", "rate_x"), ("x best peer", "best_x"), ("CPU us", "cpu"), ("x nginx", "cpu_x"),
                                                       ("wrk's CPU us", "load"), ("p50 ms", "p50"), ("p99 ms", "p99"), ("bytes", "size"), ("failed", "bad"),
                                                       ("others", "others")]),
    "files": ("One wheel of {big} MB", [("MB/s", "rate"), ("x nginx", "rate_x"), ("quarters", "spread"), ("CPU s/GB", "cpu"), ("x nginx", "cpu_x"),
                                        ("clients' CPU s/GB", "load"), ("anonymous MiB", "anonymous"), ("failed", "bad"), ("others", "others")]),
    "ranges": ("Random ranges of 64 KiB", [("ranges/s", "rate"), ("x nginx", "rate_x"), ("CPU us", "cpu"), ("x nginx", "cpu_x"), ("wrk's CPU us", "load"),
                                           ("p50 ms", "p50"), ("p99 ms", "p99"), ("failed", "bad"), ("others", "others")]),
    "tls": ("TLS 1.3: the wheel of {big} MB, CPU in s for a GB, and the page of {page} files, 32 connections, CPU in us for a request",
            [("MB/s, requests/s", "rate"), ("x nginx", "rate_x"), ("quarters", "spread"), ("CPU", "cpu"), ("x nginx", "cpu_x"), ("client's CPU", "load"),
             ("p50 ms", "p50"), ("p99 ms", "p99"), ("anonymous MiB", "anonymous"), ("failed", "bad"), ("others", "others")]),
    "start": ("Start to the first right page, {wheels} wheels", [("s", "rate"), ("CPU s", "cpu"), ("resident MiB", "resident"), ("anonymous MiB", "anonymous")]),
    "clients": ("Installing 20 wheels, cold", [("rounds", "rounds"), ("s", "rate"), ("x nginx", "rate_x"), ("quarters", "spread"), ("client's CPU s", "load"),
                                               ("x nginx", "load_x"), ("server's CPU s", "cpu"), ("requests", "requests"), ("others", "others")]),
}


def goals(o, found):
    """Those of issue 5 that were measured."""
    reached = lib.Goals()
    ours = lambda measure, cell: found.get(measure, {}).get((cell, "jetwheel"), {})
    for cell in ("HTML", "HTML gzip", "JSON", "JSON gzip", "304"):
        of = ours("pages", cell)
        reached.add("page, %s: requests/s x nginx" % cell, of.get("rate_x"), least=0.8)
        reached.add("page, %s: p99 x nginx" % cell, of.get("p99_x"), most=3)
    for cell in ("HTML", "HTML gzip", "JSON", "JSON gzip"):
        of = ours("pages", cell)
        peers = [v["cpu"] for (kind, name), v in found.get("pages", {}).items() if kind == cell and name not in ("nginx", "jetwheel")]
        reached.add("page, %s: requests/s x best peer" % cell, of.get("best_x"), least=20)
        if peers and of:
            reached.add("page, %s: CPU of the best peer x ours" % cell, min(peers) / of["cpu"], least=20)
    for cell, clients in (("1 clients", 1), ("16 clients", 16), ("64 clients", 64), ("64 curls", 64)):
        of = ours("files", cell)
        reached.add("file, %s: MB/s x nginx" % cell, of.get("rate_x"), least=0.9)
        reached.add("file, %s: CPU per GB x nginx" % cell, of.get("cpu_x"), most=1.5)
        reached.add("file, %s: anonymous MiB" % cell, of.get("anonymous"), most=64 + clients)
    for connections in (1, 16):
        reached.add("ranges, %d connections: x nginx" % connections, ours("ranges", "%d connections" % connections).get("rate_x"), least=0.7)
    reached.add("start, s", ours("start", "start").get("rate"), most=0.3)
    reached.add("idle, resident MiB", ours("start", "start").get("resident"), most=60)
    for client in ("pip", "uv"):
        of, limit = ours("clients", client), found.get("clients", {}).get((client, "nginx"), {})
        reached.add("%s install: s x nginx" % client, of.get("rate_x"), most=1.05)
        reached.add("%s install: client's CPU x nginx" % client, of.get("load_x"), most=1.05)
        if limit.get("requests"):
            reached.add("%s install: requests" % client, of.get("requests"), most=limit["requests"])
    if "through" in found:
        pull.goals(found["through"], reached)
    return reached


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", help="a folder that is kept; else a temporary one")
    p.add_argument("--servers", default="nginx,jetwheel,devpi,pypiserver,proxpi")
    p.add_argument("--measures", default="pages,files,ranges,tls,start,clients,through")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--installs", type=int, default=15, help="rounds of installing, of nginx and jetwheel")
    p.add_argument("--seconds", type=int, default=3, help="of each load by wrk")
    p.add_argument("--cut", type=int, default=4, help="seconds of each load by downloads")
    p.add_argument("--wheels", type=int, default=10_000)
    p.add_argument("--page", type=int, default=1_000, help="files of the page")
    p.add_argument("--big", type=int, default=2_000, help="MB of the big wheel")
    p.add_argument("--log", help="RUST_LOG of jetwheel; its default writes a line for each request, nginx writes none")
    p.add_argument("--jetwheel", help="the binary; else a release build is made")
    o = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))             # so that the servers are stopped
    o.servers, o.measures = o.servers.split(","), o.measures.split(",")
    scratch = None if o.work else tempfile.TemporaryDirectory(prefix="bench-peers-")
    o.work = os.path.abspath(o.work or scratch.name)
    o.shared, o.filling, o.venvs = (os.path.join(o.work, f) for f in ("wheels", "filling", "venvs"))
    if not o.jetwheel:
        subprocess.run([os.environ.get("CARGO", "cargo"), "build", "--release", "--locked", "-q"], cwd=ROOT, check=True)
        o.jetwheel = str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/jetwheel")
    install(o)
    if not os.path.exists(o.work + "/.made"):
        corpus.make(o.shared, o.filling, o.wheels, o.page, o.big)
        pathlib.Path(o.work, ".made").touch()
    all_ = [cls(o) for cls in (servers.Jetwheel, servers.Nginx, servers.Devpi, servers.Pypiserver, servers.Proxpi) if cls.name in o.servers]
    for server in all_:
        server.prepare()
    all_.sort(key=lambda s: o.servers.index(s.name))
    running, found = [], {}
    try:
        if set(o.measures) - {"start", "tls"}:
            for server in all_:
                server.start()
                running.append(server)
        for name in o.measures:
            if name == "through":
                found[name] = through(o, running)
                pull.show(found[name])
                continue
            found[name] = medians(globals()[name](o, running))
            title, columns = COLUMNS[name]
            rows = [(server, cell, *(v.get(f) for _, f in columns)) for (cell, server), v in found[name].items()]
            lib.table(title.format(**vars(o)), ["server", "what", *(c for c, _ in columns)], rows)
            sys.stdout.flush()
    finally:
        for server in running:
            server.stop()
        if scratch:
            scratch.cleanup()
    told = {name: [{"what": cell, "server": server, **v} for (cell, server), v in of.items()] if name != "through" else of for name, of in found.items()}
    sys.exit(goals(o, found).end("peers", told))


if __name__ == "__main__":
    main()
