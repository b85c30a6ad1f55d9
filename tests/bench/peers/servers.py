"""jetwheel and its peers, as things that are prepared once, started and stopped. Each has `index`, the URL of its simple index."""
import html.parser, json, os, pathlib, re, shutil, subprocess, urllib.parse
import lib

DEVICE = "orin-jp6.2"
MEASURED = ["page", "app", "big"] + ["dep%02d" % d for d in range(19)]

NGINX = """
user root; worker_processes auto; pid {work}/nginx.pid; error_log {work}/error.log error; daemon off;
events {{ worker_connections 4096; }}
http {{
  client_body_temp_path {work}/b; proxy_temp_path {work}/p; fastcgi_temp_path {work}/f; uwsgi_temp_path {work}/u; scgi_temp_path {work}/s;
  sendfile on; tcp_nopush off; keepalive_requests 10000000; gzip_static on; default_type application/octet-stream; access_log {log};
  open_file_cache max=20000 inactive=60s; open_file_cache_valid 30s;
  map $http_accept $form {{ default html; "~*application/vnd\\.pypi\\.simple\\.v1\\+json" json; }}
  types {{ text/html html; application/vnd.pypi.simple.v1+json json; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096 {tls}; root {root};
    location ~ /simple/.*/$ {{ add_header Vary Accept; add_header Cache-Control max-age=60; try_files ${{uri}}index.$form =404; }}
    location = /status {{ stub_status; }}
    location ~ /simple/[^/]+$ {{ absolute_redirect off; return 301 $uri/; }}
  }}
}}
"""


class Links(html.parser.HTMLParser):
    def __init__(self, url):
        super().__init__()
        self.url, self.found = url, []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found.append(urllib.parse.urljoin(self.url, dict(attributes).get("href", "").split("#")[0]))


def links(index, project):
    """Absolute URLs of a project's files."""
    parser = Links(index + project + "/")
    parser.feed(lib.get(parser.url, Accept=lib.HTML)[2].decode())
    return parser.found


class Server:
    """With a certificate and its key it speaks TLS alone; jetwheel and nginx do."""

    def __init__(self, o, tls=None):
        self.o, self.work, self.tls = o, os.path.join(o.work, self.name), tls
        os.makedirs(self.work, exist_ok=True)
        self.log = os.path.join(self.work, "log")

    def tool(self, venv, program):
        return os.path.join(self.o.venvs, venv, "bin", program)

    def prepare(self):
        pass

    def start(self):
        self.port = lib.free_port()
        self.process = self.spawn()
        self.index = "%s://127.0.0.1:%d%s" % ("https" if self.tls else "http", self.port, self.path)
        try:
            lib.wait_for(self.index + "page/", self.process)
        except Exception:
            self.stop()
            raise

    def stop(self):
        lib.stop(self.process)


class Jetwheel(Server):
    name, path = "jetwheel", "/%s/simple/" % DEVICE

    def requests(self):
        """How many requests it has answered, but for those that ask for this."""
        text = lib.get("http://127.0.0.1:%d/metrics" % self.port)[2].decode()
        rows = re.findall(r"^jetwheel_http_requests_total\{([^}]*)\} (\d+)", text, re.M)
        return sum(int(count) for labels, count in rows if '"metrics"' not in labels)

    def spawn(self):
        env = {"RUST_LOG": self.o.log} if self.o.log else {}
        tls = ["--tls-cert", self.tls[0], "--tls-key", self.tls[1]] if self.tls else []
        return lib.spawn([self.o.jetwheel, "--data", self.work + "/data", "serve", "--listen", "127.0.0.1:%d" % self.port, *tls], self.log, env)

    def prepare(self):
        mark = pathlib.Path(self.work, "data", ".bench-ready")
        if not mark.exists():
            subprocess.run([self.o.jetwheel, "--data", self.work + "/data", "add", self.o.shared, self.o.filling], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            mark.touch()


class Nginx(Server):
    """The limit: what jetwheel answers, as files below the same paths; compressed beforehand as well. The wheels are jetwheel's own
    blobs: two copies lie in memory in pieces of other sizes, which is worth some 10 % of a reader's CPU."""
    name, path = "nginx", Jetwheel.path

    def requests(self):
        self.asked = getattr(self, "asked", 0) + 1
        text = lib.get("http://127.0.0.1:%d/status" % self.port)[2].decode()
        return int(text.split("requests")[1].split()[2]) - self.asked

    def spawn(self):
        conf = os.path.join(self.work, "nginx.conf")
        tls = "ssl http2; ssl_protocols TLSv1.3; ssl_certificate %s; ssl_certificate_key %s; ssl_session_cache shared:tls:10m" % tuple(self.tls) if self.tls else ""
        pathlib.Path(conf).write_text(NGINX.format(work=self.work, port=self.port, root=self.work + "/root", log="off", tls=tls))
        return lib.spawn(["nginx", "-p", self.work, "-c", conf], self.log)

    def prepare(self):
        root = self.work + "/root"
        if os.path.exists(root + "/.ready"):
            return
        ours = Jetwheel(self.o)
        ours.start()
        try:
            for project in MEASURED:
                folder = "%s%s%s/" % (root, self.path, project)
                os.makedirs(folder, exist_ok=True)
                for form, accept in (("html", lib.HTML), ("json", lib.JSON)):
                    for end, more in (("", {}), (".gz", {"Accept_Encoding": "gzip"})):
                        _, headers, body = lib.get(ours.index + project + "/", Accept=accept, **more)
                        if not end or headers.get("content-encoding") == "gzip":
                            pathlib.Path(folder, "index." + form + end).write_bytes(body)
                for url in links(ours.index, project):
                    path = root + urllib.parse.unquote(urllib.parse.urlsplit(url).path)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    if not os.path.exists(path):
                        sha256 = os.path.basename(os.path.dirname(path))
                        os.symlink("%s/data/blobs/sha256/%s/%s.whl" % (ours.work, sha256[:2], sha256), path)
                    if project != "page":
                        pathlib.Path(path + ".metadata").write_bytes(lib.get(url + ".metadata")[2])
        finally:
            ours.stop()
        pathlib.Path(root, ".ready").touch()


class Pypiserver(Server):
    name, path = "pypiserver", "/simple/"

    def spawn(self):
        pathlib.Path(self.work, "wsgi.py").write_text(
            "import os, pypiserver\napplication = pypiserver.app(roots=[os.environ['PACKAGES']], disable_fallback=True)\n")
        return lib.spawn([self.tool("pypiserver", "gunicorn"), "--no-control-socket", "-b", "127.0.0.1:%d" % self.port, "-w", "2", "-k", "gthread",
                          "--threads", "32", "--backlog", "4096", "--timeout", "300", "wsgi:application"], self.log, {"PACKAGES": self.o.shared}, self.work)


class Proxpi(Server):
    """Through its cache, from an nginx that is started with it and not counted."""
    name, path = "proxpi", "/index/"

    def spawn(self):
        self.upstream = Nginx(self.o)
        self.upstream.work = self.work + "/upstream"
        os.makedirs(self.upstream.work, exist_ok=True)
        if not os.path.exists(self.upstream.work + "/root"):
            os.symlink(os.path.join(self.o.work, "nginx", "root"), self.upstream.work + "/root")
        self.upstream.start()
        env = {"PROXPI_INDEX_URL": self.upstream.index, "PROXPI_CACHE_SIZE": "20000000000", "PROXPI_CACHE_DIR": self.work + "/cache",
               "PROXPI_LOGGING_LEVEL": "WARNING", "PROXPI_DOWNLOAD_TIMEOUT": "600"}
        os.makedirs(env["PROXPI_CACHE_DIR"], exist_ok=True)
        return lib.spawn([self.tool("proxpi", "gunicorn"), "--no-control-socket", "-b", "127.0.0.1:%d" % self.port, "-w", "1", "-k", "gthread",
                          "--threads", "64", "--timeout", "600", "--backlog", "4096", "proxpi.server:app"], self.log, env)

    def stop(self):
        super().stop()
        self.upstream.stop()


class Devpi(Server):
    name, path = "devpi", "/root/bench/+simple/"

    def spawn(self):
        return lib.spawn([self.tool("devpi", "devpi-server"), "--serverdir", self.work + "/server", "--host", "127.0.0.1", "--port", str(self.port), "--threads", "64",
                          "--connection-limit", "1000", "--max-request-body-size", "8000000000"], self.log)

    def prepare(self):
        """Imports the wheels as devpi's own tool does from a folder that it exported: minutes faster than uploads one by one."""
        mark, dump = pathlib.Path(self.work, ".ready"), pathlib.Path(self.work, "dump")
        if mark.exists():
            return
        for folder in (self.work + "/server", dump):
            shutil.rmtree(folder, ignore_errors=True)
        projects, files = {}, []
        for file in sorted(os.listdir(self.o.shared)):
            name, version = file.split("-")[:2]
            projects.setdefault(name, {})[version] = {"name": name, "version": version, "requires_python": ">=3.8"}
            path = "root/bench/%s/%s/%s" % (name, version, file)
            os.makedirs(os.path.dirname(dump / path))
            os.link(os.path.join(self.o.shared, file), dump / path)
            files.append({"type": "releasefile", "projectname": name, "version": version, "relpath": path,
                          "entrymapping": {"last_modified": "Mon, 01 Jan 2024 00:00:00 GMT"}})
        index = {"indexconfig": {"type": "stage", "bases": [], "volatile": True}, "projects": projects, "files": files}
        (dump / "dataindex.json").write_text(json.dumps({"dumpversion": "2", "users": {"root": {"username": "root"}}, "indexes": {"root/bench": index}}))
        command = [self.tool("devpi", "devpi-import"), "--serverdir", self.work + "/server", "--no-root-pypi", "--no-events", "--hard-links", dump]
        subprocess.run(command, check=True, capture_output=True, timeout=1800)
        shutil.rmtree(dump)
        mark.touch()
