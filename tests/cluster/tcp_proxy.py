"""A TCP proxy on loopback that can cut what goes through it: the network between client and server."""

import socket
import threading


class TcpProxy:
    """Passes connections on to `target` (tcp://HOST:PORT). A context manager."""

    def __init__(self, target):
        host, port = target.rsplit("/", 1)[1].rsplit(":", 1)
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._pairs = []
        self.passed = 0  # connections so far
        self._listener = None
        self._port = 0
        self.open()

    @property
    def endpoint(self):
        return f"tcp://127.0.0.1:{self._port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self.cut()

    def open(self):
        """Takes connections, on the same port as before if there was one."""
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self._port))
        self._listener.listen()
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self):
        """Takes no more connections; those that there are stay."""
        if self._listener:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
            self._listener = None

    def cut(self):
        """Ends all connections, whatever is under way on them."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side was faster

    def _accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._pairs.append((near, far))
                self.passed += 1
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()
