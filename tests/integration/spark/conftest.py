from support.spark import spark

__all__ = ["spark"]
