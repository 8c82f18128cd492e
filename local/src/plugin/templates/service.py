#!/usr/bin/env python3
"""@NAME@: a web service that greets params.name. It takes a job with 201, and then says how it gets on."""

import http.server
import json
import threading
import urllib.request


def call(job, what, body, kind="application/json"):
    """Calls Disbatch back about a job: log, status or job_storage."""
    request = urllib.request.Request(job["callbacks"][what], data=body, method="POST")
    request.add_header("Content-Type", kind)
    request.add_header("Authorization", "Bearer " + job["token"])
    urllib.request.urlopen(request).close()


def work(job):
    name = job["job"].get("name", "world")
    call(job, "log", f"Hello {name}\n".encode(), "text/plain")
    call(job, "status", json.dumps({"status": "FINISHED", "result": {"greeted": name}}).encode())


class Service(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()
        threading.Thread(target=work, args=(job,)).start()


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Service).serve_forever()
