from logdb.store.report import Report


def verify(path, **kw):
    raise NotImplementedError
