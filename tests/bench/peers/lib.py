"""Processes and their CPU and memory, load by wrk, curl and sink.py, tables. Standard library alone; loopback alone; every loop is bounded."""
import http.client, json, os, pathlib, signal, socket, ssl, statistics, subprocess, sys, tempfile, threading, time, urllib.parse

TICK = os.sysconf("SC_CLK_TCK")
HTML = "text/html"
JSON = "application/vnd.pypi.simple.v1+json"
CORES = os.cpu_count()
RESULTS = pathlib.Path(__file__).resolve().parents[3] / "target/bench"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---------------------------------------------------------------- processes

def _stat(pid):
    fields = open("/proc/%s/stat" % pid).read().rpartition(")")[2].split()
    return int(fields[1]), sum(int(x) for x in fields[11:15])      # parent; user and system ticks, with those of reaped children


def tree(pid):
    """A process and its descendants."""
    children = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            children.setdefault(_stat(p)[0], []).append(int(p))
        except (OSError, IndexError):
            pass
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def cpu_s(pid):
    """CPU seconds of a process tree; the kernel scales ticks to what was really used, so that sums over seconds are right."""
    total = 0
    for p in tree(pid):
        try:
            total += _stat(p)[1]
        except (OSError, IndexError):
            pass
    return total / TICK


def memory_mib(pid):
    """(resident, anonymous), summed over a process tree."""
    rss = anonymous = 0
    for p in tree(pid):
        try:
            for line in open("/proc/%d/smaps_rollup" % p):
                if line.startswith("Rss:"):
                    rss += int(line.split()[1])
                elif line.startswith("Anonymous:"):
                    anonymous += int(line.split()[1])
        except OSError:
            pass
    return rss / 1024, anonymous / 1024


class Cost:
    """`with Cost(pid) as c`: then c.cpu of the server, c.load of our own finished children, both in seconds, c.wall, and c.others:
    the share of all cores that none of them took."""

    def __init__(self, pid):
        self.pid = pid

    def _now(self):
        all_ = [int(x) for x in open("/proc/stat").readline().split()[1:9]]
        own = os.times()
        return time.perf_counter(), cpu_s(self.pid), (sum(all_) - all_[3] - all_[4]) / TICK, sum(own[:4])

    def __enter__(self):
        self._begin = self._now()
        return self

    def __exit__(self, *_):
        self.wall, self.cpu, busy, self.load = (b - a for a, b in zip(self._begin, self._now()))
        self.others = max(0, busy - self.cpu - self.load) / (self.wall * CORES)


class Peak(threading.Thread):
    """`with Peak(pid) as p`: then p.anonymous, the most in MiB of a process tree."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.anonymous, self.over = pid, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.1):
            self.anonymous = max(self.anonymous, memory_mib(self.pid)[1])

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def drain(pid):
    """Waits until the server has done with what a load left behind, 30 seconds at most."""
    for _ in range(120):
        before = cpu_s(pid)
        time.sleep(0.25)
        if cpu_s(pid) - before <= 0.02:
            return


def spawn(command, log, env=None, cwd=None):
    with open(log, "ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}, cwd=cwd,
                                start_new_session=True)


def stop(process):
    """Ends a process that `spawn` started, and what is left of its group."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


# ---------------------------------------------------------------- requests

def certificate(folder):
    """(certificate, key) for 127.0.0.1, made where they are missing; what `get` and `fleet` trust from then on."""
    global trusted
    files = [os.path.join(folder, f) for f in ("tls.pem", "tls.key")]
    if not os.path.exists(files[0]):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650", "-subj",
                        "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", files[1], "-out", files[0]], check=True, capture_output=True)
    trusted = files[0]
    return files


def get(url, **headers):
    """(status, headers in lower case, body)."""
    u = urllib.parse.urlsplit(url)
    if u.scheme == "https":
        connection = http.client.HTTPSConnection(u.hostname, u.port, timeout=60, context=ssl.create_default_context(cafile=trusted))
    else:
        connection = http.client.HTTPConnection(u.hostname, u.port, timeout=60)
    try:
        connection.request("GET", u.path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def wait_for(url, process, every=0.02, limit_s=90, accept=HTML):
    """Waits for a page; yields its body."""
    end = time.perf_counter() + limit_s
    while time.perf_counter() < end:
        if process.poll() is not None:
            raise RuntimeError("the server ended with code %d" % process.returncode)
        try:
            status, _, body = get(url, Accept=accept)
            if status == 200:
                return body
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(every)
    raise RuntimeError("no answer in %d s: %s" % (limit_s, url))


LUA = """%s
done = function(s, l, r)
  io.write(string.format('\\n@@{"n":%%d,"us":%%d,"bad":%%d,"p50":%%.3f,"p99":%%.3f}\\n', s.requests, s.duration,
    s.errors.status + s.errors.timeout + s.errors.connect + s.errors.read + s.errors.write, l:percentile(50)/1000, l:percentile(99)/1000))
end
"""


def wrk(url, connections, seconds, headers, lua=""):
    """Requests (n) and seconds (s), failures (bad), p50 and p99 in ms."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(LUA % lua)
        script.flush()
        command = ["wrk", "-t", "1" if connections < 2 else "2", "-c", str(connections), "-d", "%ds" % seconds, "--timeout", "20s", "-s", script.name]
        for pair in headers.items():
            command += ["-H", "%s: %s" % pair]
        out = subprocess.run(command + [url], capture_output=True, text=True, timeout=seconds + 60).stdout
    found = json.loads(out.split("@@")[1])
    return {**found, "s": found["us"] / 1e6}


def fleet(url, clients, limit_s, *options):
    """That many curls ask for one URL at once; (bytes, wall seconds, how many did not get 200). After the limit they are cut off."""
    if url.startswith("https:"):
        options += ("--cacert", trusted)
    command = ["curl", "-sS", *options, "-o", os.devnull, "--max-time", str(limit_s), "-w", "%{http_code} %{size_download}\n", url]
    begin = time.perf_counter()
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(clients)]
    rows = [p.communicate()[0].split() for p in running]
    return sum(int(r[1]) for r in rows), time.perf_counter() - begin, sum(r[0] != "200" for r in rows)


def sink(url, clients, seconds):
    """That many connections read one URL for a while, in one process; (bytes, wall seconds, how many went wrong)."""
    u = urllib.parse.urlsplit(url)
    command = [sys.executable, pathlib.Path(__file__).with_name("sink.py"), str(u.port), u.path, str(clients), str(seconds)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 120).stdout)
    return found["bytes"], found["s"], found["bad"] + found["short"]


# ---------------------------------------------------------------- figures

def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def shown(value):
    if value is None:
        return "-"
    if isinstance(value, (str, int)):
        return str(value)
    size = abs(value)
    return "%.0f" % value if size >= 100 else "%.1f" % value if size >= 10 else "%.2f" % value if size >= 0.1 else "%.3f" % value


def table(title, columns, rows):
    print("\n### %s\n\n| %s |\n|%s" % (title, " | ".join(columns), "---|" * len(columns)))
    for row in rows:
        print("| %s |" % " | ".join(shown(v) for v in row))


class Goals:
    """What was found beside what was wanted, as rows of (what, found, goal, holds)."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, least=None, most=None):
        """A line; none if the figure was not measured."""
        if value is not None:
            holds = value >= least if least is not None else value <= most
            self.rows.append((what, float(value), ">= %g" % least if least is not None else "<= %g" % most, holds))

    def end(self, name, found):
        """Prints the table, writes all to target/bench/NAME.json, and yields the exit code."""
        table("Goals", ["what", "found", "goal", "holds"], [(*r[:3], "yes" if r[3] else "NO") for r in self.rows])
        RESULTS.mkdir(parents=True, exist_ok=True)
        goals = [dict(zip(("what", "found", "goal", "holds"), row)) for row in self.rows]
        text = json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "cores": CORES, "found": found, "goals": goals}, indent=1)
        (RESULTS / (name + ".json")).write_text(text + "\n")
        return 0 if all(row[3] for row in self.rows) else 1
