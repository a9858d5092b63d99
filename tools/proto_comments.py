"""The comments of protos, from their descriptors, and the numbers by which these tell what a comment is about."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

__all__ = ["ENUMS", "FIELDS", "MESSAGES", "METHODS", "SERVICES", "VALUES", "Comments"]

# Numbers of fields in descriptor.proto, as the paths of comments have them.
MESSAGES, ENUMS, SERVICES, FIELDS, METHODS, VALUES = 4, 5, 6, 2, 2, 2


class Comments:
    """The comments of a file by the path of what they are about."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._by_path = {tuple(one.path): one.leading_comments for one in file.source_code_info.location}

    def about(self, *path: int) -> str:
        """Return a comment as one text, its paragraphs apart."""
        lines = [line.strip() for line in self._by_path.get(path, "").strip().splitlines()]
        return "\n\n".join(" ".join(part) for part in _paragraphs(lines))


def _paragraphs(lines: Sequence[str]) -> Iterator[list[str]]:
    rest = list(lines)
    while rest:
        part = list(takewhile(bool, rest))
        if part:
            yield part
        rest = rest[len(part) + 1 :]
