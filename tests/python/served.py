"""A server on loopback that does what a test says, and notes what it was asked."""

import http.server


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
