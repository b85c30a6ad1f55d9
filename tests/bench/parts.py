"""The servers that benches start beside the mirror, as processes that can be killed and started again."""
import http.client, os, pathlib, signal, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/bench/peers"))
import lib

LIMIT_S = 180               # for whatever is waited for
PARTS = []                  # all that was started


class Part:
    """A process that can be killed and started again."""

    def __init__(self, name, command, log, env=None, cwd=None, ready=lambda: True):
        self.name, self.command, self.log, self.env, self.cwd, self.ready, self.process = name, command, log, env, cwd, ready, None

    def start(self):
        if self not in PARTS:
            PARTS.append(self)
        self.process = lib.spawn(self.command, self.log, self.env, self.cwd)
        until("%s starts (%s)" % (self.name, self.log), self.ready)
        return self

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ended(self):
        return self.process is not None and self.process.poll() is not None


def stop_all():
    for part in reversed(PARTS):
        if part.process:
            lib.stop(part.process)


def until(what, is_so, limit_s=LIMIT_S):
    end = time.time() + limit_s
    while not is_so():
        if time.time() > end:
            raise RuntimeError("not within %d s: %s" % (limit_s, what))
        time.sleep(0.02)


def answers(port):
    def ask():
        try:
            http.client.HTTPConnection("127.0.0.1", port, timeout=5).connect()
            return True
        except OSError:
            return False
    return ask


class Postgres(Part):
    """A PostgreSQL server of its own, whose cluster is kept in `folder`; everybody on the loopback may come in."""

    def __init__(self, folder, log):
        self.port = lib.free_port()
        home = sorted(pathlib.Path("/usr/lib/postgresql").iterdir())[-1] / "bin"
        as_ = []
        if os.getuid() == 0:                                # whom PostgreSQL refuses
            as_ = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        self.psql = str(home / "psql")
        if not os.path.exists(folder + "/cluster"):
            os.makedirs(folder)
            if as_:
                os.chown(folder, 65534, 65534)
            subprocess.run([*as_, str(home / "initdb"), "--auth=trust", "--username=jetwheel", "--encoding=UTF8", "--locale=C", "-D",
                            folder + "/cluster"], check=True, capture_output=True, cwd=folder)
        command = [*as_, str(home / "postgres"), "-D", folder + "/cluster", "-p", str(self.port), "-c", "listen_addresses=127.0.0.1", "-c",
                   "unix_socket_directories=", "-c", "max_connections=200"]
        super().__init__("PostgreSQL", command, log, cwd=folder, ready=lambda: self.sql("SELECT 1", check=False) == "1")

    def address(self, database="postgres"):
        return "postgres://jetwheel@127.0.0.1:%d/%s" % (self.port, database)

    def sql(self, statement, check=True):
        ended = subprocess.run([self.psql, "-X", "-A", "-t", "-q", "-c", statement, self.address()], capture_output=True, text=True)
        if check and ended.returncode:
            raise RuntimeError("%s: %s" % (statement, ended.stderr))
        return ended.stdout.strip()
