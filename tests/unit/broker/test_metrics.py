import threading

from logdb.broker.metrics import Metrics, TopicCounts


def test_counters_of_many_threads_are_exact():
    metrics = Metrics()

    def work():
        for _ in range(2_000):
            metrics.appended("t", 2, 100)
            metrics.fetched("t", 10)
            metrics.request()
            metrics.called("produce")
            metrics.refused()
            metrics.failed_authentication()
            metrics.throttled(3)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = metrics.counts()
    assert counts.topics == {"t": TopicCounts(messages_in=16_000, bytes_in=800_000, bytes_out=80_000)}
    assert (counts.requests, counts.calls) == (8_000, {"produce": 8_000})
    assert (counts.refusals, counts.failed_authentications, counts.throttled_ms) == (8_000, 8_000, 24_000)


def test_what_was_counted_stays_as_it_was():
    metrics = Metrics()
    metrics.appended("t", 1, 1)
    before = metrics.counts()
    metrics.appended("t", 1, 1)
    metrics.forget("t")
    assert before.topics["t"].messages_in == 1
    assert metrics.counts().topics == {}
