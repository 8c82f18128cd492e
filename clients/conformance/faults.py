"""A server that answers as a test tells it to: late, not at all, by halves, or with an error.

`POST /_script` with a list of answers begins anew; each other request gets the next one of them. `GET /_requests` has the
requests since then, with the second in which each came. An answer is an object with some of `status`, `headers`, `json`,
`text`, `chunks` (a list of texts), `delay` (seconds before it), `silence` (seconds between chunks), `reset` (the connection is reset in place of an answer)
and `cut` (it is reset after the chunks); with the value "end" both end it properly.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Script:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        script = self.script
        if self.path == "/_script":
            with script.lock:
                script.answers, script.requests = json.loads(body), []
            return self.answer({"json": {}})
        if self.path == "/_requests":
            with script.lock:
                return self.answer({"json": script.requests})
        try:
            decoded = json.loads(body)
        except ValueError:
            decoded = None
        seen = {
            "method": self.command,
            "target": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "json": decoded,
            "at": time.monotonic(),
        }
        with script.lock:
            script.requests.append(seen)
            answer = script.answers.pop(0) if script.answers else {"status": 599, "json": {"error": "the script is at its end"}}
        self.answer(answer)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_any

    def answer(self, answer: dict[str, Any]) -> None:
        self.close_connection = True
        time.sleep(answer.get("delay", 0))
        if answer.get("reset"):
            return self.reset(answer["reset"])
        chunks = [text.encode() for text in answer.get("chunks", [])]
        if not chunks:
            text = answer.get("text", json.dumps(answer.get("json", {})))
            chunks = [text.encode()]
        try:
            self.send_response(answer.get("status", 200))
            self.send_header("Connection", "close")
            self.send_header("Transfer-Encoding", "chunked")
            headers = {"Content-Type": "application/json", **answer.get("headers", {})}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            for number, chunk in enumerate(chunks):
                time.sleep(answer.get("silence", 0) if number else 0)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            if answer.get("cut"):
                # What was sent is not to be lost with the connection.
                time.sleep(0.2)
                return self.reset(answer["cut"])
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass  # Whoever has asked waits no longer.

    def reset(self, how: bool | str) -> None:
        if how == "end":
            return  # Whoever calls closes it.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            pass

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def shutdown_request(self, request: Any) -> None:
        try:
            super().shutdown_request(request)
        except OSError:
            pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Faults:
    """The server, with and without TLS. `ca_file` has the certificate that is to be trusted."""

    def __init__(self, folder: Path) -> None:
        handler = type("OwnHandler", (Handler,), {"script": Script()})
        self.ca_file = folder / "ca.pem"
        key = folder / "key.pem"
        if not self.ca_file.exists():
            names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
            command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
            # Rust's TLS takes no certificate of an authority as that of a server.
            command += ["-addext", "basicConstraints=critical,CA:FALSE"]
            command += ["-subj", "/CN=localhost", "-addext", names, "-keyout", str(key), "-out", str(self.ca_file)]
            subprocess.run(command, check=True, capture_output=True)
        self.plain = Server(("127.0.0.1", 0), handler)
        self.tls = Server(("127.0.0.1", 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.ca_file, key)
        self.tls.socket = context.wrap_socket(self.tls.socket, server_side=True, do_handshake_on_connect=False)
        for server in (self.plain, self.tls):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.plain.server_address[1]}"
        self.tls_url = f"https://127.0.0.1:{self.tls.server_address[1]}"
