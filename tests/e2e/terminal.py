"""A program on a pseudo-terminal, driven like a person drives it."""
import os
import pty
import re
import select
import signal
import time

ESCAPES = re.compile(rb"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>])")


class Terminal:
    def __init__(self, command):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execvp(command[0], command)
        self.unread = b""
        self.status = None

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)

    def send(self, text):
        self.send_bytes(text.encode())

    def send_bytes(self, content):
        os.write(self.master, content)

    def enter(self, line):
        self.send(line + "\r")

    def read_more(self, deadline):
        ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            chunk = os.read(self.master, 65536)
        except OSError:  # the other side is closed
            return False
        self.unread += chunk
        return bool(chunk)

    def until(self, pattern, timeout=60):
        """The text up to and with `pattern` (a regular expression), without escape sequences."""
        deadline = time.monotonic() + timeout
        while True:
            plain = ESCAPES.sub(b"", self.unread).replace(b"\r", b"").decode(errors="replace")
            match = re.search(pattern, plain)
            if match:
                self.unread = plain[match.end():].encode()
                return plain[:match.end()]
            assert self.read_more(deadline), f"waited {timeout} s for {pattern!r}, saw {plain!r}"

    def wait(self, timeout=20):
        """Exit status once the program has ended."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
            self.read_more(min(deadline, time.monotonic() + 0.05))
        raise AssertionError(f"still running after {timeout} s; last output {self.unread[-300:]!r}")

    def cpu_ticks(self):
        """User and system time of the process, in clock ticks."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
