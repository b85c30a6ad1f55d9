#!/usr/bin/env python3
"""A whole fleet of servers, of which one part after the other is killed by SIGKILL, under load.

  tests/bench/fleet.py --garage PATH [--jetwheel PATH] [--away 20] [--pips 2] [--work DIR]
  tests/bench/fleet.py --garage PATH --jobs 200 [--workers 1,2,1,2]     # instead: how fast the queue is done

Starts PostgreSQL, an S3-compatible server that keeps what it has on disk (garage, by
`cargo install --no-default-features --features bundled-libs,lmdb garage`), three `serve` (one streams files, two redirect), two `work`
and nginx, which asks the servers in turn. pip fetches through nginx in a loop; every page of every server is asked for in a loop, and
each answer compared with what was published; releases are synced by way of the queue. Then each `serve` and each `work` in turn is
killed and started again after some seconds, PostgreSQL is killed for --away seconds, and the S3 server.

Wrong is: a page that lists a file which it should not, or lacks one that any server listed two seconds ago (while the database is away
and just after: that it had before); a wheel with other bytes; a refusal or a failed pip where nothing is down; a page at hand that is not
served while the database or the bucket is away; a file that is lost at the end. Exit code 1 then.
"""
import argparse, hashlib, http.client, json, os, pathlib, random, re, shutil, signal, statistics, subprocess, sys, tempfile, threading
import time, urllib.parse

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench/peers"), str(ROOT / "tests/support")]
import lib, mkwheel, upstream
from parts import PARTS, Part, Postgres, answers, stop_all, until

DEVICE = "orin-jp6.2"
JSON = "application/vnd.pypi.simple.v1+json"
PROJECTS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
VISIBLE_S = 2               # within which a change is seen by all
SETTLES_S = 15              # within which all is as before after a part came back; answers are judged mildly until then
KEY, SECRET = "GK" + "a1" * 12, "b2" * 32
SWITCHES = ["--platform", "linux_aarch64", "--python-version", "3.10", "--implementation", "cp", "--abi", "cp310", "--only-binary", ":all:"]


class Fleet:
    def __init__(self, o, scratch):
        self.o, self.scratch, self.published, self.first, self.lock = o, scratch, {}, {}, threading.Lock()
        self.wheels = os.path.join(scratch, "wheels")
        os.makedirs(self.wheels)
        self.upstream = self.serve_upstream()
        self.postgres, self.s3 = Postgres(self.path("postgres"), self.path("postgres.log")).start(), self.make_garage()
        self.sql = self.postgres.sql
        config = 'catalogue = "%s"\nblobs = "s3://wheels/site"\n[s3]\nendpoint = "http://127.0.0.1:%d"\n' \
                 'path_style = true\n' % (self.postgres.address(), self.s3_port)
        self.config, streams = (os.path.join(scratch, name) for name in ("site.toml", "streams.toml"))
        pathlib.Path(self.config).write_text(config)
        pathlib.Path(streams).write_text(config + "stream = true\n")
        self.env = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "JETWHEEL_CONFIG": self.config, "RUST_LOG": "warn"}
        self.ports = [lib.free_port() for _ in range(3)]
        serve = lambda n, config: Part("serve %d" % n, [o.jetwheel, "--config", config, "--data", self.path("serve%d" % n), "serve", "--listen",
                                       "127.0.0.1:%d" % self.ports[n]], self.path("serve%d.log" % n), self.env, ready=answers(self.ports[n]))
        self.serves = [serve(n, streams if n == 0 else self.config).start() for n in range(3)]
        self.works = [Part("work %d" % n, [o.jetwheel, "--data", self.path("work%d" % n), "work"], self.path("work%d.log" % n), self.env).start()
                      for n in range(2)]
        self.proxy = self.make_nginx()

    def path(self, name):
        return os.path.join(self.scratch, name)

    def make_garage(self):
        self.s3_port, rpc = lib.free_port(), lib.free_port()
        pathlib.Path(self.path("garage.toml")).write_text(
            'metadata_dir = "%s"\ndata_dir = "%s"\ndb_engine = "lmdb"\nreplication_factor = 1\nrpc_bind_addr = "127.0.0.1:%d"\n'
            'rpc_public_addr = "127.0.0.1:%d"\nrpc_secret = "%s"\nallow_world_readable_secrets = true\n[s3_api]\ns3_region = "us-east-1"\n'
            'api_bind_addr = "127.0.0.1:%d"\n' % (self.path("s3-meta"), self.path("s3-data"), rpc, rpc, "c3" * 32, self.s3_port))
        env = {"GARAGE_DEFAULT_ACCESS_KEY": KEY, "GARAGE_DEFAULT_SECRET_KEY": SECRET, "GARAGE_DEFAULT_BUCKET": "wheels", "RUST_LOG": "warn"}
        return Part("S3 server", [self.o.garage, "-c", self.path("garage.toml"), "server", "--single-node", "--default-bucket"], self.path("s3.log"),
                    env, ready=answers(self.s3_port)).start()

    def make_nginx(self):
        self.port = lib.free_port()
        folder = self.path("nginx")
        os.makedirs(folder)
        temporary = "".join("%s_temp_path t-%s;" % (k, k) for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        pathlib.Path(folder, "nginx.conf").write_text(
            "daemon off; master_process off; pid nginx.pid; error_log stderr; events {} http { access_log off; %s upstream all { %s } server {"
            " listen 127.0.0.1:%d; location / { proxy_pass http://all; proxy_http_version 1.1; proxy_set_header Host $http_host;"
            " proxy_connect_timeout 2s; proxy_next_upstream error timeout http_503; } } }"
            % (temporary, "".join("server 127.0.0.1:%d max_fails=0;" % p for p in self.ports), self.port))
        nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin") or sys.exit("nginx is needed: apt-get install nginx-light")
        return Part("nginx", [nginx, "-p", folder, "-e", "stderr", "-c", "nginx.conf"], self.path("nginx.log"), ready=answers(self.port)).start()

    def serve_upstream(self):
        def answer(path):
            if path.startswith("/simple/"):
                with self.lock:
                    rows = list(self.published.get(path.split("/")[2], {}).items())
                return "text/html", upstream.page(rows)
            return "application/octet-stream", pathlib.Path(self.wheels, path.rsplit("/", 1)[-1]).read_bytes()
        return upstream.serve(answer)

    def publish(self, project, version):
        """A new release at the upstream, of a megabyte with code for Orin."""
        name = "%s-%s-cp310-cp310-linux_aarch64.whl" % (project, version)
        elf = {"path": project + "/_C.so", "soname": "_C.so", "glibc": "2.17", "cuda": "12.6", "payload": 1_000_000, "fatbins": [["sm_87"]]}
        mkwheel.build({"filename": name, "elfs": [elf]}, self.wheels)
        digest = hashlib.sha256(pathlib.Path(self.wheels, name).read_bytes()).hexdigest()
        with self.lock:
            self.published.setdefault(project, {})[name] = digest
        return name

    def sync(self, *arguments):
        return subprocess.Popen([self.o.jetwheel, "--data", self.path("commands"), "sync", "--device", DEVICE, "--upstream", self.upstream, *arguments],
                                env={**os.environ, **self.env}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def page(self, port, project):
        """(status, {file: digest}) of a page; status 0 where nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("GET", "/%s/simple/%s/" % (DEVICE, project), headers={"Accept": JSON})
            answer = connection.getresponse()
            body = answer.read()
            files = json.loads(body)["files"] if answer.status == 200 else []
            return answer.status, {f["filename"]: f["hashes"]["sha256"] for f in files}
        except (OSError, http.client.HTTPException):
            return 0, {}
        finally:
            connection.close()

class Load:
    """The loops of pages and pips, and what they found wrong."""

    def __init__(self, fleet, pips):
        self.fleet, self.wrong, self.over, self.down, self.tally, self.lock = fleet, [], threading.Event(), {}, {}, threading.Lock()
        loops = [lambda n=n: self.pages(n) for n in range(3)] + [lambda: self.pages(None)] + [lambda n=n: self.pip(n) for n in range(pips)]
        self.threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
        for thread in self.threads:
            thread.start()

    def count(self, what):
        with self.lock:
            self.tally[what] = self.tally.get(what, 0) + 1

    def note(self, text):
        with self.lock:
            self.wrong.append("%s %s" % (time.strftime("%H:%M:%S"), text))

    def mild(self, part, began):
        """Whether the part was down, or had just come back, at any moment since then."""
        since, till = self.down.get(part, (None, None))
        return since is not None and (till is None or began < till + SETTLES_S)

    def pages(self, n):
        fleet, rng = self.fleet, random.Random(n)
        port, who = (fleet.port, "proxy") if n is None else (fleet.ports[n], "serve %d" % n)
        while not self.over.is_set():
            project, began = rng.choice(PROJECTS), time.time()
            status, files = fleet.page(port, project)
            self.count("pages" if status == 200 else "%s: %d" % (who, status))
            at_hand = not self.mild("changes", began)
            if status != 200:
                excused = self.mild(who, began) if n is not None else False
                if not excused and (at_hand or not self.mild("PostgreSQL", began)):
                    self.note("%s: page of %s: %d" % (who, project, status))
            else:
                self.judge(who, project, files, began)
            time.sleep(0.01)

    def judge(self, who, project, files, began):
        fleet = self.fleet
        with fleet.lock:
            truth = dict(fleet.published[project])
            for name in files:
                fleet.first.setdefault(name, time.time())
            since = self.down.get("PostgreSQL", (None, None))[0] if self.mild("PostgreSQL", began) else None
            seen = [name for name in truth if fleet.first.get(name, began) < min(began, since or began) - VISIBLE_S]
        odd = [name for name, digest in files.items() if truth.get(name) != digest]
        lost = [name for name in seen if name not in files]
        if odd or lost:
            self.note("%s: page of %s: strange %s, missing %s" % (who, project, odd, lost))

    def pip(self, n):
        fleet, rng = self.fleet, random.Random(100 + n)
        while not self.over.is_set():
            with fleet.lock:
                known = [(p, name, d) for p in PROJECTS for name, d in fleet.published[p].items() if fleet.first.get(name, time.time()) < time.time() - VISIBLE_S]
            if not known:
                time.sleep(0.2)
                continue
            project, name, digest = rng.choice(known)
            began = time.time()
            with tempfile.TemporaryDirectory(dir=fleet.scratch) as folder:
                ended = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--isolated",
                                        "--disable-pip-version-check", "-d", folder, "-i", "http://127.0.0.1:%d/%s/simple/" % (fleet.port, DEVICE),
                                        *SWITCHES, "%s==%s" % (project, name.split("-")[1])],
                                       capture_output=True, text=True, env={**os.environ, "PIP_NO_INDEX": "", "PIP_FIND_LINKS": ""})
                if ended.returncode == 0:
                    self.count("pips")
                    if hashlib.sha256(pathlib.Path(folder, name).read_bytes()).hexdigest() != digest:
                        self.note("pip: %s has other bytes" % name)
                else:
                    self.count("pips that failed")
                    if not any(self.mild(part, began) for part in self.down):
                        self.note("pip: %s: %s" % (name, ended.stderr[-300:]))

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(120)


def settle(fleet, what):
    """Waits until everything that was published is on all pages and the queue is empty; yields the seconds."""
    began = time.time()

    def whole():
        for port in [*fleet.ports, fleet.port]:
            for project in PROJECTS:
                with fleet.lock:
                    truth = dict(fleet.published[project])
                if fleet.page(port, project) != (200, truth):
                    return False
        # What nobody has at hand is answered as well.
        return all(fleet.page(port, "nobody%d" % random.randrange(10**9))[0] == 404 for port in fleet.ports)
    until("all is on all pages after %s" % what, whole)
    until("the queue is empty", lambda: fleet.sql("SELECT count(*) FROM job WHERE state <> 'done'") == "0")
    return time.time() - began


def visible(fleet, load, version):
    """Seconds from the end of a sync to its release on all servers."""
    name = fleet.publish(PROJECTS[0], version)
    ended = fleet.sync("--no-deps", PROJECTS[0])
    said = ended.communicate()[1]
    if ended.returncode != 0:
        load.note("a sync ended with code %d: %s" % (ended.returncode, said[-300:]))
    began = time.time()
    until("%s is on all pages" % name, lambda: all(name in fleet.page(port, PROJECTS[0])[1] for port in fleet.ports))
    return time.time() - began


def queue(fleet, projects, version):
    """Publishes a release of each, and has it put on the queue: a sync takes the newest."""
    for project in projects:
        fleet.publish(project, version)
    return fleet.sync("--no-deps", "--queue", *projects)


def trial(fleet, o):
    queue(fleet, PROJECTS, "0.9").wait()
    print("filled: all on all pages after %.1f s" % settle(fleet, "the start"), flush=True)
    load = Load(fleet, o.pips)
    delays = [visible(fleet, load, "1.%d" % n) for n in range(5)]
    print("a sync is seen by all three %s s after its end (most %.2f)" % (", ".join("%.2f" % d for d in delays), max(delays)), flush=True)
    if max(delays) > VISIBLE_S:
        load.note("a sync was seen after %.2f s" % max(delays))
    step = 2
    for part in [*fleet.serves, *fleet.works, fleet.postgres, fleet.s3]:
        shared = part in (fleet.postgres, fleet.s3)
        step += 1
        before = dict(load.tally)
        if shared:
            # Pages are at hand, and nothing changes, until it is gone.
            time.sleep(VISIBLE_S)
            settle(fleet, "the warming")
        else:
            queueing = queue(fleet, PROJECTS, "%d.0" % step)
        if part in fleet.works:
            until("a job is being done", lambda: fleet.sql("SELECT count(*) FROM job WHERE state = 'running'") != "0")
        load.down[part.name] = (time.time(), None)
        part.kill()
        if shared:
            time.sleep(o.away / 2)
            # What begins now waits, and goes on when it is back; pages of what it changes are no longer at hand.
            if part is fleet.postgres:
                load.down["changes"] = (time.time() + o.away / 2 - 0.5, None)
            queueing = queue(fleet, PROJECTS, "%d.0" % step)
            time.sleep(o.away / 2)
        else:
            time.sleep(5)
        part.start()
        back = time.time()
        load.down[part.name] = (load.down[part.name][0], back)
        said = queueing.communicate()[1]
        if queueing.returncode != 0:
            load.note("sync --queue ended with code %d: %s" % (queueing.returncode, said[-300:]))
        settled = settle(fleet, part.name)
        if "changes" in load.down:
            load.down["changes"] = (load.down["changes"][0], time.time())
        later = visible(fleet, load, "%d.1" % step)
        if later > VISIBLE_S:
            load.note("after %s was back, a sync was seen after %.2f s" % (part.name, later))
        time.sleep(SETTLES_S)
        delta = {k: v - before.get(k, 0) for k, v in sorted(load.tally.items()) if v != before.get(k, 0)}
        print("%s killed for %d s: back, with all new releases on all pages %.1f s later, a sync seen after %.2f s; %s"
              % (part.name, o.away if shared else 5, settled, later, ", ".join("%s %d" % d for d in delta.items())), flush=True)
        for other in PARTS:
            if other.ended():
                load.note("%s ended with code %d (%s)" % (other.name, other.process.returncode, other.log))
                other.start()
    load.end()
    check_end(fleet, load)
    print("in all: %s" % ", ".join("%s %d" % d for d in sorted(load.tally.items())))
    print("wrong: %d" % len(load.wrong))
    for line in load.wrong[:30]:
        print("  " + line)
    return 1 if load.wrong else 0


def check_end(fleet, load):
    """Every wheel, byte for byte, from the servers; the store's own check; the queue."""
    count = 0
    for project in PROJECTS:
        for name, digest in fleet.published[project].items():
            url = "http://127.0.0.1:%d/%s/files/%s/%s" % (fleet.ports[count % 3], DEVICE, digest, name)
            ended = subprocess.run(["curl", "-s", "-f", "-L", url], capture_output=True)
            if ended.returncode or hashlib.sha256(ended.stdout).hexdigest() != digest:
                load.note("%s: lost: curl %d" % (url, ended.returncode))
            count += 1
    ended = subprocess.run([fleet.o.jetwheel, "--data", fleet.path("commands"), "verify"], env={**os.environ, **fleet.env}, capture_output=True, text=True)
    if ended.returncode:
        load.note("verify: code %d: %s" % (ended.returncode, ended.stdout[-500:]))
    jobs = fleet.sql("SELECT state || ' ' || count(*) || ', most attempts ' || max(attempts) FROM job GROUP BY state")
    for n in range(3):
        text = pathlib.Path(fleet.path("serve%d.log" % n)).read_text(errors="replace")
        for line in re.findall(r".*(?:panicked|ERROR(?!.*cannot be reached)).*", text)[:5]:
            load.note("log of serve %d: %s" % (n, line[:300]))
    print("%d wheels are there byte for byte; verify: code %d; jobs: %s" % (count, ended.returncode, jobs.replace("\n", "; ")))


def doubling(fleet, o):
    """Times `work` on a queue of as many wheels, for more and fewer processes, each time from nothing."""
    projects = ["job%03d" % n for n in range(o.jobs)]
    for project in projects:
        fleet.publish(project, "1.0")
    print("%d wheels, %.1f MB" % (o.jobs, sum(os.path.getsize(os.path.join(fleet.wheels, n)) for p in projects for n in fleet.published[p]) / 1e6))
    for turn, workers in enumerate(map(int, o.workers.split(","))):
        name = "turn%d" % turn
        fleet.sql("CREATE DATABASE " + name)
        text = pathlib.Path(fleet.config).read_text().replace("/postgres\"", "/%s\"" % name).replace("s3://wheels/site", "s3://wheels/" + name)
        config = fleet.path(name + ".toml")
        pathlib.Path(config).write_text(text)
        env = {**os.environ, **fleet.env, "JETWHEEL_CONFIG": config}
        command = lambda n, *words: [o.jetwheel, "--data", fleet.path("%s-%s" % (name, n)), *words]
        subprocess.run(command("queue", "sync", "--device", DEVICE, "--no-deps", "--queue", "--upstream", fleet.upstream, *projects), env=env, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began, before = time.time(), os.times()
        running = [subprocess.Popen(command(n, "work", "--until-empty"), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for n in range(workers)]
        codes = [process.wait() for process in running]
        seconds, after = time.time() - began, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        held = subprocess.run(command("queue", "--format", "json", "verify"), env=env, capture_output=True, text=True)
        print("%d workers: %6.1f s, CPU of all %.1f s, load of the machine %.1f on %d cores; codes %s; %s wheels are there"
              % (workers, seconds, cpu, os.getloadavg()[0], os.cpu_count(), codes, json.loads(held.stdout)["blobs"]), flush=True)
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--garage", default=shutil.which("garage"))
    p.add_argument("--jetwheel", help="the binary; else a release build is made")
    p.add_argument("--away", type=int, default=20, help="seconds for which database and bucket are away")
    p.add_argument("--pips", type=int, default=2)
    p.add_argument("--jobs", type=int, help="measure the queue with as many wheels, and kill nothing")
    p.add_argument("--workers", default="1,2,1,2")
    p.add_argument("--work", help="keep logs and data here")
    o = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not o.garage:
        sys.exit("garage is needed: cargo install --no-default-features --features bundled-libs,lmdb garage")
    if not o.jetwheel:
        subprocess.run([os.environ.get("CARGO", "cargo"), "build", "--release", "--locked", "-q"], cwd=ROOT, check=True)
        o.jetwheel = str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/jetwheel")
    scratch = o.work or tempfile.mkdtemp(prefix="bench-fleet-", dir="/tmp")
    os.makedirs(scratch, exist_ok=True)
    os.chmod(scratch, 0o755)                                # PostgreSQL runs as another user
    try:
        code = (doubling if o.jobs else trial)(Fleet(o, scratch), o)
    finally:
        stop_all()
        if not o.work:
            shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
