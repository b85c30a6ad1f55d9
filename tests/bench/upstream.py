"""A simple index on the loopback, whose pages and files are whatever a function answers."""
import http.server, sys, threading


def page(rows):
    """A project's page: the links of pairs of file name and digest."""
    return "".join('<a href="../../f/%s#sha256=%s">%s</a>' % (file, digest, file) for file, digest in rows).encode()


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *parties):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that is killed leaves in the middle of an answer
            super().handle_error(*parties)


def serve(answer):
    """Answers each path with the type and bytes that `answer` has for it, 404 where it has none; yields the URL of the index."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            found = answer(self.path)
            kind, body = found or ("text/plain", b"")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return "http://127.0.0.1:%d/simple/" % server.server_address[1]
