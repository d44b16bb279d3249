"""Annotations mean the same on every Python: since 3.14 they are evaluated when someone asks, in the finished class."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("src", "http_api", "kafka_api", "replication", "spark_source", "iceberg")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def annotations_of(owner: ast.ClassDef) -> Iterator[ast.expr]:
    for item in owner.body:
        if isinstance(item, ast.AnnAssign):
            yield item.annotation
        elif isinstance(item, FUNCTIONS):
            arguments = item.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            yield from (one.annotation for one in every if one is not None and one.annotation is not None)
            if item.returns is not None:
                yield item.returns


def shadowed(source: str) -> set[str]:
    """Class.method for each method whose name an annotation of its class means as something else."""
    found = set()
    for owner in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)):
        methods = {item.name for item in owner.body if isinstance(item, FUNCTIONS)}
        named = {node.id for annotation in annotations_of(owner) for node in ast.walk(annotation) if isinstance(node, ast.Name)}
        found |= {f"{owner.name}.{name}" for name in methods & named}
    return found


def test_what_is_found() -> None:
    assert shadowed("class A:\n def list(self) -> str: ...\n async def of(self, a: list[int]): ...\n b: int") == {"A.list"}
    assert shadowed('class A:\n def list(self) -> "list[int]": ...\n def b(self, *a: int, **c: set): ...') == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_annotation_means_a_method_of_its_class(package: str) -> None:
    paths = list((ROOT / package).rglob("*.py"))
    assert paths
    assert {str(path): found for path in paths if (found := shadowed(path.read_text(encoding="utf-8")))} == {}
