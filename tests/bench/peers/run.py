#!/usr/bin/env python3
"""jetwheel beside its peers in one run: nginx with the same bytes as files (the limit), devpi-server, pypiserver and proxpi.

  tests/bench/peers/run.py [--work DIR] [--servers nginx,jetwheel] [--measures pages,files,ranges,start,clients] [--rounds 5]

Installs what it needs: nginx, wrk and curl with apt-get where they are missing, the peers and uv with pip into DIR/venvs. --work
keeps wheels, uploads and venvs for the next run. Servers take turns, cell by cell and round by round, so that a ratio compares what
was measured seconds apart; figures are medians over the rounds. CPU is the server's own: it holds on a busy machine, wall times do not.
`others` is the share of all cores that neither the server nor the load took. The last table holds the goals; exit code 1 if one is missed.
"""
import argparse, os, pathlib, shutil, signal, subprocess, sys, tempfile, time, urllib.parse

sys.dont_write_bytecode = True
import corpus, lib, servers

ROOT = pathlib.Path(__file__).resolve().parents[3]
RANGES = """
math.randomseed(7)
request = function()
  local o = math.random(0, %d)
  return wrk.format("GET", nil, {["Range"] = "bytes=" .. o .. "-" .. (o + 65535)})
end
"""
VENVS = {"uv": ["uv"], "devpi": ["devpi-server"], "proxpi": ["proxpi", "gunicorn"],
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
            subprocess.run([venv / "bin/pip", "-q", "--disable-pip-version-check", "install", *packages], check=True)
            (venv / ".ready").touch()


def turns(o, running, cell, measure, rows):
    """Every server in turn, round after round: rows of {server, cell, figures}."""
    for n in range(o.rounds):
        for server in running:
            lib.drain(server.process.pid)
            try:
                found = measure(server)
            except Exception as error:
                print("%s, %s: %r" % (server.name, cell, error), file=sys.stderr)
                continue
            if found:
                rows.append({"server": server.name, "cell": cell, "round": n, **found})
        print("%s %s: round %d of %d" % (time.strftime("%H:%M:%S"), cell, n + 1, o.rounds), file=sys.stderr, flush=True)


def pages(o, running):
    """The page of many files at 32 connections."""
    def measure(kind):
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
            lib.wrk(url, 4, 1, headers)
            with lib.Cost(server.process.pid) as cost:
                r = lib.wrk(url, 32, o.seconds, headers)
            return {"rate": r["n"] / r["s"], "cpu": cost.cpu * 1e6 / r["n"], "p50": r["p50"], "p99": r["p99"], "bad": r["bad"], "others": cost.others,
                    "size": 0 if "304" in kind else len(body)}
        return of
    rows = []
    for kind in ("HTML", "HTML gzip", "JSON", "JSON gzip", "304"):
        turns(o, running, kind, measure(kind), rows)
    return rows


def files(o, running):
    """The big wheel by several clients at once, cut off after a while: what came until then counts."""
    def measure(clients):
        def of(server):
            url = servers.links(server.index, "big")[0]
            if server.name == "proxpi":
                lib.get(url)                                # so that its cache has it
            lib.drain(server.process.pid)
            with lib.Peak(server.process.pid) as peak, lib.Cost(server.process.pid) as cost:
                size, wall, bad = lib.fleet(url, clients, o.cut)
            return {"rate": size / wall / 1e6, "cpu": cost.cpu / (size / 1e9), "anonymous": peak.anonymous, "bad": bad, "others": cost.others}
        return of
    rows = []
    for clients in (1, 16, 64):
        turns(o, running, "%d clients" % clients, measure(clients), rows)
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
            return {"rate": r["n"] / r["s"], "cpu": cost.cpu * 1e6 / r["n"], "p50": r["p50"], "p99": r["p99"], "bad": r["bad"], "others": cost.others}
        return of
    rows = []
    for connections in (1, 16):
        turns(o, running, "%d connections" % connections, measure(connections), rows)
    return rows


def start(o, running):
    """From the start of the process to the first right page, and memory a second later."""
    rows = []
    for server in running:                                  # a store has one owner
        if server.name == "jetwheel":
            server.stop()
    for n in range(max(o.rounds, 5)):
        for cls in (servers.Nginx, servers.Jetwheel):
            server = cls(o)
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
                rows.append({"server": server.name, "cell": "start", "round": n, "rate": seconds, "cpu": cpu, "resident": resident, "anonymous": anonymous})
            finally:
                server.stop()
    for server in running:
        if server.name == "jetwheel":
            server.start()
    return rows


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
                with lib.Cost(server.process.pid) as cost:
                    subprocess.run(command, check=True, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
                found = sum(name.endswith(".dist-info") for name in os.listdir(target))
            if found != 20:
                raise RuntimeError("%d of 20 are installed" % found)
            return {"rate": cost.wall, "cpu": cost.cpu, "others": cost.others}
        return of
    rows = []
    for client in ("pip", "uv"):
        turns(o, running, client, measure(client), rows)
    return rows


def medians(rows):
    """{(cell, server): figures}, with ratios to nginx of the same round."""
    nginx = {(r["cell"], r["round"]): r for r in rows if r["server"] == "nginx"}
    cells = {}
    for r in rows:
        base = nginx.get((r["cell"], r["round"]))
        for f in ("rate", "cpu", "p99"):
            if base and f in r and base[f]:
                r[f + "_x"] = r[f] / base[f]
        cells.setdefault((r["cell"], r["server"]), []).append(r)
    return {k: {f: lib.median([r.get(f) for r in rs]) for f in {f for r in rs for f in r} - {"server", "cell"}} | {"bad": sum(r.get("bad", 0) for r in rs)}
            for k, rs in cells.items()}


COLUMNS = {
    "pages": ("Page of {page} files, 32 connections", [("requests/s", "rate"), ("x nginx", "rate_x"), ("CPU us", "cpu"), ("x nginx", "cpu_x"),
                                                       ("p50 ms", "p50"), ("p99 ms", "p99"), ("bytes", "size"), ("failed", "bad"), ("others", "others")]),
    "files": ("One wheel of {big} MB", [("MB/s", "rate"), ("x nginx", "rate_x"), ("CPU s/GB", "cpu"), ("x nginx", "cpu_x"), ("anonymous MiB", "anonymous"),
                                        ("failed", "bad"), ("others", "others")]),
    "ranges": ("Random ranges of 64 KiB", [("ranges/s", "rate"), ("x nginx", "rate_x"), ("CPU us", "cpu"), ("x nginx", "cpu_x"), ("p50 ms", "p50"),
                                           ("p99 ms", "p99"), ("failed", "bad"), ("others", "others")]),
    "start": ("Start to the first right page, {wheels} wheels", [("s", "rate"), ("CPU s", "cpu"), ("resident MiB", "resident"), ("anonymous MiB", "anonymous")]),
    "clients": ("Installing 20 wheels, cold", [("s", "rate"), ("x nginx", "rate_x"), ("server CPU s", "cpu"), ("others", "others")]),
}


def goals(o, found):
    """(what, figure, goal, holds) of those of issue 5 that were measured."""
    rows = []

    def goal(what, value, least=None, most=None):
        if value is not None:
            rows.append((what, float(value), ">= %g" % least if least is not None else "<= %g" % most, value >= least if least is not None else value <= most))
    ours = lambda measure, cell: found.get(measure, {}).get((cell, "jetwheel"), {})
    for cell in ("HTML", "HTML gzip", "JSON", "JSON gzip", "304"):
        of = ours("pages", cell)
        goal("page, %s: requests/s x nginx" % cell, of.get("rate_x"), least=0.8)
        goal("page, %s: p99 x nginx" % cell, of.get("p99_x"), most=3)
    for cell in ("HTML", "HTML gzip", "JSON", "JSON gzip"):
        peers = [v["cpu"] for (of, name), v in found.get("pages", {}).items() if of == cell and name not in ("nginx", "jetwheel")]
        if peers and ours("pages", cell):
            goal("page, %s: CPU of the best peer x ours" % cell, min(peers) / ours("pages", cell)["cpu"], least=20)
    for clients in (1, 16, 64):
        of = ours("files", "%d clients" % clients)
        goal("file, %d clients: MB/s x nginx" % clients, of.get("rate_x"), least=0.9)
        goal("file, %d clients: CPU per GB x nginx" % clients, of.get("cpu_x"), most=1.5)
        goal("file, %d clients: anonymous MiB" % clients, of.get("anonymous"), most=64 + clients)
    for connections in (1, 16):
        goal("ranges, %d connections: x nginx" % connections, ours("ranges", "%d connections" % connections).get("rate_x"), least=0.7)
    goal("start, s", ours("start", "start").get("rate"), most=0.3)
    goal("idle, resident MiB", ours("start", "start").get("resident"), most=60)
    for client in ("pip", "uv"):
        goal("%s install: s x nginx" % client, ours("clients", client).get("rate_x"), most=1.05)
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", help="a folder that is kept; else a temporary one")
    p.add_argument("--servers", default="nginx,jetwheel,devpi,pypiserver,proxpi")
    p.add_argument("--measures", default="pages,files,ranges,start,clients")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=3, help="of each load by wrk")
    p.add_argument("--cut", type=int, default=6, help="seconds after which downloads are cut off")
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
        if set(o.measures) - {"start"}:
            for server in all_:
                server.start()
                running.append(server)
        for name in o.measures:
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
    reached = goals(o, found)
    lib.table("Goals", ["what", "found", "goal", "holds"], [(*r[:3], "yes" if r[3] else "NO") for r in reached])
    sys.exit(0 if all(r[3] for r in reached) else 1)


if __name__ == "__main__":
    main()
