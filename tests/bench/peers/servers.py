"""jetwheel and its peers, as things that are prepared once, started and stopped. Each has `index`, the URL of its simple index."""
import base64, html.parser, http.client, json, os, pathlib, shutil, subprocess, time, urllib.parse
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
    listen 127.0.0.1:{port} backlog=4096; root {root};
    location ~ /simple/.*/$ {{ add_header Vary Accept; add_header Cache-Control max-age=60; try_files ${{uri}}index.$form =404; }}
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
    def __init__(self, o):
        self.o, self.work = o, os.path.join(o.work, self.name)
        os.makedirs(self.work, exist_ok=True)
        self.log = os.path.join(self.work, "log")

    def tool(self, venv, program):
        return os.path.join(self.o.venvs, venv, "bin", program)

    def prepare(self):
        pass

    def start(self):
        self.port = lib.free_port()
        self.process = self.spawn()
        self.index = "http://127.0.0.1:%d%s" % (self.port, self.path)
        try:
            lib.wait_for(self.index + "page/", self.process)
        except Exception:
            self.stop()
            raise

    def stop(self):
        lib.stop(self.process)


class Jetwheel(Server):
    name, path = "jetwheel", "/%s/simple/" % DEVICE

    def spawn(self):
        env = {"RUST_LOG": self.o.log} if self.o.log else {}
        return lib.spawn([self.o.jetwheel, "--data", self.work + "/data", "serve", "--listen", "127.0.0.1:%d" % self.port], self.log, env)

    def prepare(self):
        mark = pathlib.Path(self.work, "data", ".bench-ready")
        if not mark.exists():
            subprocess.run([self.o.jetwheel, "--data", self.work + "/data", "add", self.o.shared, self.o.filling], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            mark.touch()


class Nginx(Server):
    """The limit: what jetwheel answers, as files below the same paths; compressed beforehand as well."""
    name, path = "nginx", Jetwheel.path

    def spawn(self):
        conf = os.path.join(self.work, "nginx.conf")
        pathlib.Path(conf).write_text(NGINX.format(work=self.work, port=self.port, root=self.work + "/root", log="off"))
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
                        os.symlink(os.path.join(self.o.shared, os.path.basename(path)), path)
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
        folder = self.work + "/server"
        if not os.path.exists(folder + "/.serverversion"):
            subprocess.run([self.tool("devpi", "devpi-init"), "--serverdir", folder], check=True, capture_output=True)
        return lib.spawn([self.tool("devpi", "devpi-server"), "--serverdir", folder, "--host", "127.0.0.1", "--port", str(self.port), "--threads", "64",
                          "--connection-limit", "1000", "--max-request-body-size", "8000000000"], self.log)

    def prepare(self):
        """Uploads the wheels as devpi's own client does."""
        mark = pathlib.Path(self.work, ".ready")
        if mark.exists():
            return
        shutil.rmtree(self.work + "/server", ignore_errors=True)
        self.port = lib.free_port()
        process, base = self.spawn(), "http://127.0.0.1:%d/" % self.port
        try:
            lib.wait_for(base + "+api", process, accept="application/json")
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
            token = self.ask("POST", "/+login", {"user": "root", "password": ""})["result"]["password"]
            auth = {"X-Devpi-Auth": base64.b64encode(b"root:" + token.encode()).decode()}
            self.ask("PUT", "/root/bench", {"type": "stage", "bases": [], "volatile": True}, auth)
            for file in sorted(os.listdir(self.o.shared)):
                name, version = file.split("-")[:2]
                form = [":action=file_upload", "name=" + name, "version=" + version, "content=@" + os.path.join(self.o.shared, file)]
                command = ["curl", "-sS", "-f", "-o", os.devnull, "--max-time", "300", "-H", "X-Devpi-Auth: " + auth["X-Devpi-Auth"], base + "root/bench/"]
                subprocess.run(command + [x for field in form for x in ("-F", field)], check=True)
        finally:
            lib.stop(process)
        mark.touch()

    def ask(self, method, path, body, headers={}):
        self.connection.request(method, path, json.dumps(body), {"Content-Type": "application/json", "Accept": "application/json", **headers})
        return json.loads(self.connection.getresponse().read())


ALL = [Nginx, Jetwheel, Devpi, Pypiserver, Proxpi]
