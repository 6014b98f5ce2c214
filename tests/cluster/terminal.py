"""Pseudo-terminals: a program as a person at the keyboard meets it."""

import os
import pty
import select
import signal
import time


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, words, environment):
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            os.execve(words[0], words, environment)
        self.text = ""
        self._status = None

    def read_until(self, condition, seconds=30):
        start = time.monotonic()
        while not condition(self.text):
            if time.monotonic() - start > seconds:
                raise AssertionError(f"not within {seconds} s; so far: {self.text!r}")
            if select.select([self._end], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self._end, 65536).decode(errors="replace")
                except OSError:  # the program has left
                    raise AssertionError(f"it left early: {self.text!r}") from None

    def type(self, keys):
        """Types and forgets what was on the screen."""
        self.text = ""
        os.write(self._end, keys)

    def exit_status(self, seconds=10):
        start = time.monotonic()
        while self._status is None and time.monotonic() - start < seconds:
            if select.select([self._end], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self._end, 65536).decode(errors="replace")
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def close(self):
        if self._status is None and self.exit_status(0) is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._end)
