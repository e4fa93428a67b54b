"""A service on a loopback port for web_api.py, so that the example runs offline."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

KEY = "key-of-the-weather-service"
CELSIUS = {"Oslo": 4, "Rome": 19}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        city = parse_qs(asked.query).get("city", [""])[0]
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self.send_error(401)
        elif asked.path != "/forecast" or city not in CELSIUS:
            self.send_error(404)
        else:
            body = json.dumps({"city": city, "celsius": CELSIUS[city]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    """The address of the running service."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
