"""What a command costs."""
import os, pathlib, statistics, subprocess, sys, threading, time


class Cost:
    """CPU seconds, wall seconds, peak RSS and peak anonymous memory in MiB."""
    def __init__(self, cpu=0.0, wall=0.0, rss=0.0, anon=0.0):
        self.cpu, self.wall, self.rss, self.anon = cpu, wall, rss, anon

    def __add__(self, other):                            # one after the other
        return Cost(self.cpu + other.cpu, self.wall + other.wall, max(self.rss, other.rss), max(self.anon, other.anon))


def status_mib(pid, *keys):
    try:
        lines = pathlib.Path("/proc/%d/status" % pid).read_text().splitlines()
    except OSError:
        return {}
    return {k: int(v.split()[0]) / 1024 for k, v in (line.split(":", 1) for line in lines) if k in keys and v.split()}


def run(command, cores=None, ok=(0,)):
    """Runs a command, on these cores or on all; its cost. Memory is sampled, since wait4's peak counts Python's from before exec."""
    begin = time.perf_counter()
    pinned = ["taskset", "-c", cores] if cores else []
    process = subprocess.Popen([*pinned, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               env={**os.environ, "RUST_LOG": "error"})
    peak, done = {"VmHWM": 0.0, "RssAnon": 0.0}, threading.Event()

    def sample():
        while not done.wait(0.005):
            for k, v in status_mib(process.pid, *peak).items():
                peak[k] = max(peak[k], v)
    sampler = threading.Thread(target=sample)
    sampler.start()
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    done.set()
    sampler.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in ok:
        sys.exit("%s: exit code %d: %s" % (command[0], process.returncode, errors.decode(errors="replace")[-500:]))
    return Cost(usage.ru_utime + usage.ru_stime, wall, peak["VmHWM"] or usage.ru_maxrss / 1024, peak["RssAnon"])


def median(costs):
    return Cost(*(statistics.median(getattr(c, k) for c in costs) for k in ("cpu", "wall", "rss", "anon")))
