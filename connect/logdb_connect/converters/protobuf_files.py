"""Files in the language of Protocol Buffers: protoc compiles them, with those that they import.

protoc is the compiler of the package grpcio-tools, in a process of its own.  Names and texts come from a registry: a name that leaves the
directory of the files is refused.
"""

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from logdb_connect.errors import DataError, RetriableError

META: Final = "confluent/meta.proto"
DECIMAL: Final = "confluent/type/decimal.proto"
DATE: Final = "google/type/date.proto"
TIME: Final = "google/type/timeofday.proto"
TIMESTAMP: Final = "google/protobuf/timestamp.proto"
WRAPPERS: Final = "google/protobuf/wrappers.proto"
_TIMEOUT_S: Final = 120
_OPTIONS: Final = (("File", "file"), ("Message", "message"), ("Field", "field"), ("Enum", "enum"), ("EnumValue", "enum_value"))
_EXTENSIONS: Final = "".join(f"extend google.protobuf.{of}Options {{ Meta {name}_meta = 1088; }}\n" for of, name in _OPTIONS)
_KNOWN: Final[Mapping[str, str]] = {
    META: 'syntax = "proto3";\npackage confluent;\nimport "google/protobuf/descriptor.proto";\n'
    f"message Meta {{ string doc = 1; map<string, string> params = 2; repeated string tags = 3; }}\n{_EXTENSIONS}",
    DECIMAL: 'syntax = "proto3";\npackage confluent.type;\nmessage Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }\n',
    DATE: 'syntax = "proto3";\npackage google.type;\nmessage Date { int32 year = 1; int32 month = 2; int32 day = 3; }\n',
    TIME: 'syntax = "proto3";\npackage google.type;\n'
    "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }\n",
}
"""Files that registries and their clients have without registration."""


class Compiled:
    """A compiled file, with all that it imports."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """Compile it.

        Args:
            references: The texts of files that it imports, by the names under which it imports them.

        Raises:
            DataError: The text is wrong; the error has the message of protoc.
            RetriableError: protoc took too long.
        """
        from google.protobuf import descriptor_pb2, descriptor_pool

        name = "schema_of_the_registry.proto"
        files = descriptor_pb2.FileDescriptorSet.FromString(_run(name, {**_KNOWN, **references, name: text}))
        self.pool = descriptor_pool.DescriptorPool()
        for each in files.file:
            self.pool.Add(each)
        self.file: Any = self.pool.FindFileByName(name)
        self._has_meta = any(each.name == META for each in files.file)

    def message(self, path: tuple[int, ...]) -> Any:
        """The descriptor of a message: its index in the file, then those of nested ones."""
        try:
            found = list(self.file.message_types_by_name.values())[path[0]]
            for index in path[1:]:
                found = found.nested_types[index]
        except IndexError:
            raise DataError(f"The schema of the registry has no message at {list(path)}") from None
        return found

    def message_class(self, descriptor: Any) -> Any:
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(descriptor)

    def parameters(self, field: Any) -> Mapping[str, str]:
        """The parameters of a field, which are in an option of Confluent's."""
        if not self._has_meta or not field.has_options:
            return {}
        options = self.message_class(self.pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
        read = options.FromString(field.GetOptions().SerializeToString())
        return dict(read.Extensions[self.pool.FindExtensionByName("confluent.field_meta")].params)


def _run(name: str, texts: Mapping[str, str]) -> bytes:
    """The descriptors of a file and of those that it imports, as protoc writes them."""
    tools = importlib.util.find_spec("grpc_tools")
    if tools is None or tools.origin is None:
        need = "'protobuf' and 'grpcio-tools' of the extra 'connect-protobuf': pip install 'protobuf>=5' 'grpcio-tools>=1.66'"
        raise DataError(f"ProtobufConverter needs the packages {need}")
    with tempfile.TemporaryDirectory(prefix="logdb-protobuf-") as directory:
        for each, text in texts.items():
            path = PurePosixPath(each)
            if path.is_absolute() or ".." in path.parts or "\0" in each or not each.isprintable():
                raise DataError(f"A schema of the registry refers to {each!r}, which is no name of a file below a directory")
            place = Path(directory) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        made = Path(directory) / ".descriptors"
        include = [f"-I{directory}", f"-I{Path(tools.origin).parent / '_proto'}"]
        command = [sys.executable, "-I", "-m", "grpc_tools.protoc", *include, f"--descriptor_set_out={made}", "--include_imports", name]
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RetriableError(f"protoc did not compile a schema of the registry within {_TIMEOUT_S} s; retry is safe") from None
        if done.returncode != 0:
            raise DataError(f"Not a valid Protobuf schema: {done.stderr.strip()[:1000]}")
        return made.read_bytes()
