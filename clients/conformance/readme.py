"""Runs what a page shows: conformance/readme.py LANGUAGE PAGE..

A block after `<!-- file: NAME -->` is that file. The other blocks of the language are one program, in their order, which a
`disbatch dev` is there for. Each block of `sh` prints what the block of `text` after it says.

Rust is not compiled here: the program is an example of the library, which is compiled with all else, and has to be what the page shows.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from disbatch.testing import Dev

from tools import rust_example

BLOCK = re.compile(r"(?:<!-- file: (\S+) -->\n)?```(\w+)\n(.*?)^```$", re.S | re.M)
HERE = Path(__file__).resolve().parent.parent
PROGRAMS = {
    "python": ("snippets.py", [sys.executable, "snippets.py"]),
    "typescript": ("snippets.mts", ["node", "snippets.mjs"]),
    "perl": ("snippets.pl", ["perl", "snippets.pl"]),
}


def run(command: list[str], folder: Path, env: dict[str, str], page: Path) -> str:
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    if ended.returncode != 0:
        sys.exit(f"{page}: {' '.join(command)[:300]}: {ended.stdout}\n{ended.stderr}")
    return ended.stdout


def compile_typescript(folder: Path, env: dict[str, str], page: Path) -> None:
    package = HERE / "typescript"
    (folder / "node_modules/@types").mkdir(parents=True)
    (folder / "node_modules/disbatch").symlink_to(package)
    for name in ("@types/node", "mongodb", "undici-types"):
        (folder / "node_modules" / name).symlink_to(package / "node_modules" / name)
    files = [str(path) for path in folder.rglob("*.mts") if "node_modules" not in path.parts]
    options = ["--strict", "--target", "es2022", "--module", "nodenext", "--skipLibCheck", "--types", "node"]
    run([str(package / "node_modules/.bin/tsc"), *options, *files], folder, env, page)
    for path in files:
        made = Path(path).with_suffix(".mjs")
        made.chmod(0o755 if made.read_text().startswith("#!") else 0o644)


RUST = """\
//! What {page} shows.
#![expect(clippy::print_stdout, reason = "it is a program for people")]

#[tokio::main]
async fn main() -> disbatch_client::Result<()> {{
{body}    Ok(())
}}
"""


def compiled_rust(page: Path, snippets: list[str], files: dict[str, str]) -> list[str]:
    """The programs of the examples, if they are what the page shows."""
    name = f"{page.relative_to(HERE.parent).as_posix()}"
    program = "examples/readme.rs" if page.name == "README.md" else f"examples/{page.stem}_page.rs"
    shown = {program: RUST.format(page=name, body=textwrap.indent("\n".join(snippets) + "\n", "    "))}
    shown |= {path: text for path, text in files.items() if path.endswith(".rs")}
    for path, text in shown.items():
        have = (HERE / "rust" / path).read_text()
        if have != text:
            sys.exit(f"clients/rust/{path} is not what {name} shows:\n" + "\n".join(difflib.unified_diff(have.split("\n"), text.split("\n"), lineterm="")))
    return [rust_example(Path(path).stem) for path in shown]


def check(language: str, page: Path) -> int:
    blocks = BLOCK.findall(page.read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, _, text in blocks:
            if path:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
                (folder / path).chmod(0o755 if text.startswith("#!") else 0o644)
        snippets = [text for path, kind, text in blocks if kind == language and not path]
        if not snippets:
            sys.exit(f"{page} has no blocks of {language}")
        if language == "rust":
            commands = [[program] for program in compiled_rust(page, snippets, {path: text for path, _, text in blocks if path})]
        else:
            program, command = PROGRAMS[language]
            (folder / program).write_text("\n".join(snippets))
            commands = [command]
        # Plugins find the libraries by these, too.
        os.environ.update(PERL5LIB=str(HERE / "perl/lib"), PYTHONPATH=os.pathsep.join(map(os.path.abspath, sys.path[1:])))
        env = dict(os.environ)
        if language == "typescript":
            compile_typescript(folder, env, page)
        plugins = [folder / "plugins"] if (folder / "plugins").is_dir() else [HERE / "conformance/plugins"]
        with Dev(plugins=plugins) as dev:
            env.update(DISBATCH_URL=dev.url, MONGODB_URL=dev.mongodb)
            for command in commands:
                run(command, folder, env, page)
            for (path, kind, text), after in zip(blocks, [*blocks[1:], ("", "", "")]):
                if kind == "sh" and not path:
                    printed = run(["bash", "-euc", text], folder, env, page)
                    if after[1] == "text" and printed != after[2]:
                        sys.exit(f"{page}: {text}prints\n{printed}and not\n{after[2]}")
    return len(blocks)


if __name__ == "__main__":
    for one in sys.argv[2:]:
        print(f"{one}: {check(sys.argv[1], Path(one).resolve())} blocks")
