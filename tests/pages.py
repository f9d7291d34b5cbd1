"""What pages show, to be typed in by tests."""

import re
import shlex
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def blocks(page: str, language: str) -> list[str]:
    """The blocks of code of a page, a path from the top of the checkout."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def typed_lines(block: str) -> list[list[str]]:
    """The words of every command; a line may go on after a backslash, and be a pipe of commands."""
    lines = re.sub(r"\\\n", " ", block).splitlines()
    found = [shlex.split(part, comments=True) for line in lines for part in line.split(" | ")]
    return [words for words in found if words]


def write_pictures(folder: Path, images) -> None:
    """A folder of PNG files."""
    import tensorflow as tf

    folder.mkdir()
    for index, image in enumerate(images):
        (folder / f"{index}.png").write_bytes(tf.io.encode_png(image).numpy())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(url: str, server: subprocess.Popen) -> None:
    """Until the server answers."""
    for _ in range(1500):
        assert server.poll() is None, "the server has stopped"
        try:
            urllib.request.urlopen(url, timeout=10).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(f"nothing answers at {url}")
