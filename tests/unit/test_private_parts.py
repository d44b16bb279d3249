"""Private parts of Python that the sources use, each for a reason that its use says: a Python that changes one fails here by its name."""

import inspect
import ssl
import sys
import threading
from asyncio.sslproto import SSLProtocol
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest


def test_tls_begins_behind_the_first_byte():  # serving/tls.py
    assert list(inspect.signature(SSLProtocol.__init__).parameters)[1:7] == [
        "loop",
        "app_protocol",
        "sslcontext",
        "waiter",
        "server_side",
        "server_hostname",
    ]
    assert {"call_connection_made", "ssl_handshake_timeout", "ssl_shutdown_timeout"} <= set(inspect.signature(SSLProtocol).parameters)
    assert list(inspect.signature(SSLProtocol._on_handshake_complete).parameters) == ["self", "handshake_exc"]
    assert list(inspect.signature(SSLProtocol._process_outgoing).parameters) == ["self"]


def test_the_chain_of_a_client_is_found_below_python_3_13():  # serving/tls.py
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    connection = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    found = connection if sys.version_info >= (3, 13) else connection._sslobj
    assert callable(found.get_verified_chain)


class Shaped(Protocol):
    pass


def test_a_class_says_whether_it_is_a_protocol():  # mistakes.py
    assert Shaped._is_protocol
    assert not getattr(int, "_is_protocol", False)


def test_a_pool_starts_threads_in_one_method():  # pools.py
    with ThreadPoolExecutor(1) as pool:
        started = []
        pool._adjust_thread_count = lambda: started.append(pool._work_queue.qsize())
        waiting = pool.submit(print)
        assert started == [1]  # the call lies in the queue before the thread is started, so that it can be taken back
        assert pool._threads == set()
        pool._work_queue.get_nowait()
        waiting.cancel()


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock, threading.Condition, threading.Event])
def test_locks_can_be_made_anew_in_a_forked_child(make):  # threads.py
    made = make()
    if made_by := getattr(made, "acquire", None):
        made_by()
    made._at_fork_reinit()
    lock = getattr(made, "_lock", getattr(made, "_cond", made))
    assert lock.acquire(blocking=False)
    assert not isinstance(lock, type(threading.RLock())) or lock._is_owned()
    lock.release()
