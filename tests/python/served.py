"""A server on loopback that does what a test says, and notes what it was asked; and what it serves."""

import http.server
import io
import tarfile
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """What `server.act` says is done; every request is noted."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Range"), self.headers.get("If-Range")))
        try:
            self.server.act(self)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def answer(self, body, status=200, headers=(), stop_after=None, length=True):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if length:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body if stop_after is None else body[:stop_after])
        if stop_after is not None:
            self.close_connection = True

    def ranged(self, body, tag, cut=None):
        """A server that goes on where it is asked to, if its version is the one that was begun."""
        begin = self.headers.get("Range", "")
        if begin.startswith("bytes=") and self.headers.get("If-Range") == tag:
            first = int(begin[6:].split("-")[0])
            self.answer(body[first:], 206, [("ETag", tag), ("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")])
        else:
            self.answer(body, 200, [("ETag", tag)], stop_after=cut)


def begun(act):
    """A server in a thread of its own; act(handler) answers each request."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.seen, server.act = True, [], act
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


def tar_of(members):
    """A .tar.gz of such bytes by their names."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()
