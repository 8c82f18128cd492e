"""Where scripts/prepare puts what the tests of the libraries need of PyPI. As a program it prints that folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).resolve().parent.parent
LIBRARY = CLIENTS / "python/src"


def folder() -> Path:
    """Another one for other requirements or another Python."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    text = (CLIENTS / "python/requirements.txt").read_bytes() + sys.version.encode()
    return cache / "disbatch" / f"clients-{hashlib.sha256(text).hexdigest()[:12]}"


def prepare() -> None:
    """Lets this process and those that it starts find them, and the program that is tested."""
    if not folder().is_dir():
        sys.exit("the tests of the client libraries need what scripts/prepare clients installs")
    for path in (folder(), LIBRARY):
        sys.path.insert(1, str(path))
    # Where this machine has no Node.js that is new enough.
    node = folder().parent / "node-22.20.0/bin"
    if node.is_dir():
        os.environ["PATH"] = f"{node}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ["PYTHONPATH"] = f"{LIBRARY}{os.pathsep}{folder()}"
    # The fixtures come by their name, as no package is installed here.
    os.environ.update(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_PLUGINS="disbatch.pytest_plugin")
    os.environ.setdefault("DISBATCH_PROGRAM", str(CLIENTS.parent / "target/debug/disbatch"))
    for name in ("DISBATCH_URL", "DISBATCH_TOKEN", "DISBATCH_USERNAME", "DISBATCH_PASSWORD"):
        os.environ.pop(name, None)


def build_typescript() -> None:
    """Compiles the package if it has changed: others may be using it."""
    package = CLIENTS / "typescript"
    made = package / "node_modules/.disbatch-built"
    with open(package / "tsconfig.json") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        newest = max(path.stat().st_mtime for path in [package / "tsconfig.json", *(package / "src").iterdir()])
        if made.exists() and (package / "dist/index.js").exists() and made.stat().st_mtime > newest:
            return
        ended = subprocess.run([package / "node_modules/.bin/tsc", "-p", package], stdout=subprocess.PIPE, text=True)
        if ended.returncode != 0:
            sys.exit(ended.stdout)
        made.touch()


def rust_example(name: str) -> str:
    """An example of the library for Rust, which is compiled with `disbatch`."""
    path = Path(os.environ["DISBATCH_PROGRAM"]).parent / "examples" / name
    if not path.is_file():
        sys.exit(f"{path} is missing: cargo build --locked -p disbatch-client --examples")
    return str(path)


if __name__ == "__main__":
    print(folder())
