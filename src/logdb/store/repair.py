from logdb.store.report import Report


def repair(path, **kw):
    raise NotImplementedError
