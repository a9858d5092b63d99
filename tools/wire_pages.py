"""Write the pages of ``docs/wire`` from the compiled protos: ``make protos``.

A page for each file: its services' calls, then its messages and enums, with the comments of the protos.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from proto_comments import ENUMS, FIELDS, MESSAGES, METHODS, SERVICES, VALUES, Comments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

__all__ = ["main", "pages"]

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "wire"
_OURS = "topk_bandit/"
_GENERATED = "<!-- Written by `make protos` from the protos' comments: change them, not this page. -->"
_INTRODUCTION = """\
Every call and message, from the comments of the [protos](../../protos/README.md). The same calls are served over gRPC
and over [HTTP](../http.md), where the names of fields are in camelCase. All calls:
"""


def pages(files: FileDescriptorSet) -> dict[str, str]:
    """Return the text of each page by its file's name."""
    ours = [file for file in files.file if file.name.startswith(_OURS)]
    homes = {f".{file.package}.{name}": _page_of(file) for file in ours for name in _named(file)}
    texts = {_page_of(file): "\n".join(_page(file, homes)) for file in ours}
    return texts | {"README.md": "\n".join(_index(ours))}


def _named(file: FileDescriptorProto) -> list[str]:
    return [message.name for message in file.message_type] + [enum.name for enum in file.enum_type]


def _page_of(file: FileDescriptorProto) -> str:
    return f"{Path(file.name).stem}.md"


def _index(files: Sequence[FileDescriptorProto]) -> Iterator[str]:
    yield from ("# Calls and messages", "", _GENERATED, "", _INTRODUCTION)
    for file in files:
        yield f"- [`{Path(file.name).name}`]({_page_of(file)})"
        comments = Comments(file)
        for number, service in enumerate(file.service):
            for place, method in enumerate(service.method):
                told = _escaped(comments.about(SERVICES, number, METHODS, place).partition(". ")[0].rstrip("."))
                anchor = _anchor(f"{service.name}.{method.name}")
                yield f"  - [`{service.name}.{method.name}`]({_page_of(file)}#{anchor}): {told}"
    yield ""


def _page(file: FileDescriptorProto, homes: Mapping[str, str]) -> Iterator[str]:
    comments = Comments(file)
    yield from (f"# {Path(file.name).name}", "", _GENERATED, "")
    for number, service in enumerate(file.service):
        yield from (f"## {service.name}", "", f"`{file.package}.{service.name}`", "")
        yield from (_escaped(comments.about(SERVICES, number)), "")
        for place, method in enumerate(service.method):
            given, answer = (_linked(name, homes, file) for name in (method.input_type, method.output_type))
            yield from (f"### {service.name}.{method.name}", "", f"{given} → {answer}", "")
            yield from (_escaped(comments.about(SERVICES, number, METHODS, place)), "")
    for number, message in enumerate(file.message_type):
        yield from (f"## {message.name}", "", _escaped(comments.about(MESSAGES, number)), "")
        yield from _fields(message, comments, number, homes, file)
    for number, enum in enumerate(file.enum_type):
        yield from (f"## {enum.name}", "", _escaped(comments.about(ENUMS, number)), "")
        for place, value in enumerate(enum.value):
            yield _entry(f"`{value.name}` = {value.number}", comments.about(ENUMS, number, VALUES, place))
        yield ""


def _fields(
    message: DescriptorProto, comments: Comments, number: int, homes: Mapping[str, str], file: FileDescriptorProto
) -> Iterator[str]:
    if not message.field:
        yield from ("It has no fields.", "")
        return
    for place, field in enumerate(message.field):
        title = f"`{field.name}`, {_type(message, field, homes, file)}"
        yield _entry(title, comments.about(MESSAGES, number, FIELDS, place))
    yield ""


def _type(
    message: DescriptorProto, field: FieldDescriptorProto, homes: Mapping[str, str], file: FileDescriptorProto
) -> str:
    """Return a field's type, and how often and beside which others it may be there."""
    for entry in message.nested_type:
        if entry.options.map_entry and field.type_name.endswith(f".{message.name}.{entry.name}"):
            key, value = (_kind(one, homes, file) for one in entry.field)
            return f"map of {key} to {value}"
    kind = _kind(field, homes, file)
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {kind}"
    if field.proto3_optional:
        return f"optional {kind}"
    if field.HasField("oneof_index"):
        return f"{kind}, one of `{message.oneof_decl[field.oneof_index].name}`"
    return kind


def _kind(field: FieldDescriptorProto, homes: Mapping[str, str], file: FileDescriptorProto) -> str:
    if field.type_name:
        return _linked(field.type_name, homes, file)
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def _linked(type_name: str, homes: Mapping[str, str], file: FileDescriptorProto) -> str:
    """Return a message's name, with a link if it is one of ours."""
    if type_name not in homes:
        return f"`{type_name.lstrip('.')}`"
    name = type_name.rpartition(".")[2]
    page = "" if homes[type_name] == _page_of(file) else homes[type_name]
    return f"[`{name}`]({page}#{_anchor(name)})"


def _anchor(title: str) -> str:
    """Return the anchor that is made of a heading."""
    return title.lower().replace(".", "")


def _escaped(comment: str) -> str:
    """Return a comment of which Markdown reads nothing but the code between backticks."""
    parts = re.split(r"(`[^`]*`)", comment)
    return "".join(part if part.startswith("`") else re.sub(r"([*<\\]|\b_|_\b)", r"\\\1", part) for part in parts)


def _entry(title: str, comment: str) -> str:
    """Return an entry of a list: on a phone, a table would leave its comments a column of a few words."""
    told = _escaped(comment).replace("\n\n", "\n\n  ")
    return f"- {title}: {told}" if told else f"- {title}"


def main(arguments: Sequence[str]) -> int:
    """Write the pages of the compiled protos that are named first, or with ``--check`` compare them."""
    written = pages(FileDescriptorSet.FromString(Path(arguments[0]).read_bytes()))
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    stale = sorted(name for name in written.keys() | there.keys() if written.get(name) != there.get(name))
    if "--check" in arguments:
        for name in stale:
            print(f"{(FOLDER / name).relative_to(ROOT)} is out of date: run make protos")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        if name in written:
            (FOLDER / name).write_text(written[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
