"""Messages of the contract, from the .proto files themselves.

`Schema` reads .proto files, turns the JSON form of a message into a `Message`, and serialises a `Message` to its binary form. So a
field that the contract gains is read (and hashed) here without a change. Knows the part of the language that penstock/v1 uses:
scalar fields, enums, messages, `repeated` and `optional`; no maps.
"""

import base64
import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path

_TOKEN = re.compile(r'//[^\n]*|"[^"]*"|[A-Za-z_][\w.]*|-?\d+|[^\s]')
_VARINTS = {"int32", "int64", "uint32", "uint64", "bool"}
_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_DEFAULTS = {"double": 0.0, "float": 0.0, "bool": False, "string": "", "bytes": b""}


class Unreadable(Exception):
    """A file is not what it should be."""


@dataclass(frozen=True)
class Field:
    name: str
    number: int
    type: str
    label: str  # "", "repeated" or "optional"


class Message:
    """Values of all fields of a message, as attributes. A message field that is not set is None, as is an `optional` one."""

    def __init__(self, type_name, values):
        self.__dict__.update(values)
        self.__dict__["_type"] = type_name

    def with_fields(self, **values):
        """One with these in place of its own."""
        fields = {name: value for name, value in self.__dict__.items() if name != "_type"}
        return Message(self._type, {**fields, **values})

    def __eq__(self, other):
        return isinstance(other, Message) and self.__dict__ == other.__dict__

    def __repr__(self):
        return f"{self._type}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items() if k != '_type')})"


class Schema:
    """The messages and enums of one .proto file and of all that it imports."""

    def __init__(self, root, file):
        self.messages = {}  # name -> {field name -> Field}
        self.enums = {}  # name -> {value name -> number}
        self._root = Path(root)
        self._loaded = set()
        self._load(file)

    # Reading .proto files.

    def _load(self, file):
        if file in self._loaded:
            return
        self._loaded.add(file)
        text = (self._root / file).read_text(encoding="utf-8")
        tokens = [token for token in _TOKEN.findall(text) if not token.startswith("//")]
        position = 0
        while position < len(tokens):
            if tokens[position] == "import":
                self._load(tokens[position + 1].strip('"'))
            if tokens[position] in ("message", "enum"):
                position = self._read_type(tokens, position)
            elif tokens[position] == "service":
                position = _after_block(tokens, position)
            else:
                position = tokens.index(";", position) + 1

    def _read_type(self, tokens, position):
        """Reads the message or enum at `position`; returns the position after it."""
        what, name = tokens[position], tokens[position + 1]
        if name in self.messages or name in self.enums:
            raise Unreadable(f"two types are called {name}")
        members = {}
        (self.messages if what == "message" else self.enums)[name] = members
        position += 3
        open_braces = 1
        while open_braces > 0:
            word = tokens[position]
            if word == "}":
                open_braces -= 1
                position += 1
            elif word in ("message", "enum"):
                position = self._read_type(tokens, position)
            elif word == "oneof":  # Its fields are fields of the message.
                open_braces += 1
                position += 3
            else:
                end = tokens.index(";", position)
                words = tokens[position:end]
                if what == "enum" and word not in ("reserved", "option"):
                    members[word] = int(words[2])
                elif word not in ("reserved", "option"):
                    label = words.pop(0) if word in ("repeated", "optional") else ""
                    members[words[1]] = Field(words[1], int(words[3]), words[0], label)
                position = end + 1
        return position

    # JSON to messages.

    def message(self, type_name, json_object=None):
        """The message that a JSON object stands for; without one, the message with all defaults."""
        json_object = {} if json_object is None else json_object
        if not isinstance(json_object, dict):
            raise Unreadable(f"{type_name} is not a JSON object")
        fields = self.messages[type_name]
        by_json_name = {**fields, **{_camel_case(name): field for name, field in fields.items()}}
        values = {name: self._default(field) for name, field in fields.items()}
        for key, value in json_object.items():
            if key not in by_json_name:
                raise Unreadable(f"{type_name} has no field '{key}'")
            field = by_json_name[key]
            if value is None:
                continue
            if field.label == "repeated":
                if not isinstance(value, list):
                    raise Unreadable(f"{type_name}.{key} is not a list")
                values[field.name] = [self._value(field, element) for element in value]
            else:
                values[field.name] = self._value(field, value)
        return Message(type_name, values)

    def _default(self, field):
        if field.label == "repeated":
            return []
        if field.label == "optional" or field.type in self.messages:
            return None
        return _DEFAULTS.get(field.type, 0)

    def _value(self, field, value):
        kind = field.type
        try:
            if kind in self.messages:
                return self.message(kind, value)
            if kind in self.enums:
                return self.enums[kind][value] if isinstance(value, str) else int(value)
            if kind in ("double", "float"):
                return float(value)
            if kind == "string":
                return str(value)
            if kind == "bytes":
                return base64.b64decode(value, validate=True)
            if kind == "bool":
                if not isinstance(value, bool):
                    raise ValueError(value)
                return value
            low, high = _RANGES[kind]
            if not low <= int(value) <= high:
                raise ValueError(value)
            return int(value)
        except (KeyError, TypeError, ValueError) as error:
            raise Unreadable(f"{field.name}: {value!r} is no {kind}") from error

    def enum_name(self, type_name, number):
        """The name of a value of an enum, without the enum's own name in front: OP_SEND is SEND."""
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", type_name).upper() + "_"
        for name, value in self.enums[type_name].items():
            if value == number:
                return name.removeprefix(prefix)
        return str(number)

    # Messages to JSON.

    def json_object(self, message):
        """The JSON form of a message, without fields that have their default values; enums by number."""
        fields = self.messages[message._type].values()
        values = {field: getattr(message, field.name) for field in fields}
        return {
            field.name: [self._json(field, element) for element in value] if field.label == "repeated" else self._json(field, value)
            for field, value in values.items()
            if value is not None and (field.label == "optional" or not _is_default(value))
        }

    def _json(self, field, value):
        if field.type in self.messages:
            return self.json_object(value)
        if field.type == "bytes":
            return base64.b64encode(value).decode("ascii")
        if field.type in ("double", "float") and not math.isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        return str(value) if field.type in ("int64", "uint64") else value

    # Messages to bytes.

    def serialise(self, message, without=()):
        """The binary form: fields in ascending order of their numbers, default values left out, repeated numbers packed."""
        parts = []
        for field in sorted(self.messages[message._type].values(), key=lambda field: field.number):
            value = getattr(message, field.name)
            if field.name in without or value is None or (field.label != "optional" and _is_default(value)):
                continue
            if field.label == "repeated" and self._is_number(field.type):
                parts.append(_delimited(field.number, b"".join(self._number(field.type, element) for element in value)))
                continue
            for element in value if field.label == "repeated" else [value]:
                parts.append(self._element(field, element))
        return b"".join(parts)

    def _is_number(self, kind):
        return kind in _VARINTS or kind in self.enums or kind in ("double", "float")

    def _element(self, field, value):
        if self._is_number(field.type):
            wire_type = {"double": 1, "float": 5}.get(field.type, 0)
            return _varint(field.number << 3 | wire_type) + self._number(field.type, value)
        if field.type in self.messages:
            return _delimited(field.number, self.serialise(value))
        return _delimited(field.number, value.encode("utf-8") if field.type == "string" else value)

    @staticmethod
    def _number(kind, value):
        if kind in ("double", "float"):
            return struct.pack("<d" if kind == "double" else "<f", value)
        return _varint(int(value))


def _after_block(tokens, position):
    """The position after the braces that open at or after `position`."""
    depth = 0
    for index in range(position, len(tokens)):
        depth += (tokens[index] == "{") - (tokens[index] == "}")
        if tokens[index] == "}" and depth == 0:
            return index + 1
    raise Unreadable("a brace is missing")


def _camel_case(name):
    return re.sub(r"_(\w)", lambda match: match.group(1).upper(), name)


def _is_default(value):
    if isinstance(value, Message):
        return False  # A message that is set is written, even when it is empty.
    if isinstance(value, float):
        return value == 0 and math.copysign(1, value) > 0
    return not value


def _varint(value):
    value &= 2**64 - 1  # Negative numbers are written as 64-bit two's complement.
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _delimited(number, content):
    return _varint(number << 3 | 2) + _varint(len(content)) + content
