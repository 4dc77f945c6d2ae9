"""The JSON Schemas of the documents and their types say the same: keys, which are required, and what is in them."""

import copy
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from tilegate.files import load_schema
from tilegate.schemas import samples, verdict

DOCUMENTS = {"samples-1.json": samples.Samples, "verdict-1.json": verdict.Verdict}
PLAIN = {"string": str, "integer": int, "number": float, "boolean": bool, "null": type(None)}


def differences(root, schema, kind, at=""):  # noqa: PLR0911 - one for each kind of schema
    """Return what is different between a JSON Schema and a type, each with its place."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    kind = bare(kind)
    if kind is Any:
        return []
    if "anyOf" in schema or isinstance(schema.get("type"), list):
        options = schema.get("anyOf") or [{**schema, "type": one} for one in schema["type"]]
        return choice(root, options, kind, at)
    if "enum" in schema or "const" in schema:
        return literal(schema.get("enum", [schema.get("const")]), kind, at)
    if schema["type"] == "array":
        if typing.get_origin(kind) is not list:
            return [f"{at}: a list there, {kind} here"]
        return differences(root, schema["items"], typing.get_args(kind)[0], f"{at}[]")
    if schema["type"] == "object":
        return mapping(root, schema, kind, at)
    return [] if PLAIN[schema["type"]] is kind else [f"{at}: {schema['type']} there, {kind} here"]


def bare(kind):
    while typing.get_origin(kind) in (NotRequired, typing.Required):
        (kind,) = typing.get_args(kind)
    return kind


def choice(root, options, kind, at):
    kinds = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    if len(kinds) != len(options):
        return [f"{at}: {len(options)} kinds of value there, {kind} here"]
    return [
        f"{at}: no type here for {option}"
        for option in options
        if all(differences(root, option, one, at) for one in kinds)
    ]


def literal(values, kind, at):
    said = set(typing.get_args(kind)) if typing.get_origin(kind) is Literal else None
    return [] if said == set(values) else [f"{at}: one of {values} there, {kind} here"]


def mapping(root, schema, kind, at):
    if typing.is_typeddict(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        keys = set(schema.get("properties", {}))
        found = [f"{at}/{key}: not in the type" for key in keys - set(hints)]
        found += [f"{at}/{key}: not in the schema" for key in set(hints) - keys]
        needed = {key for key in kind.__required_keys__ if typing.get_origin(hints[key]) is not NotRequired}
        found += [f"{at}/{key}: required on one side only" for key in set(schema.get("required", [])) ^ needed]
        if schema.get("additionalProperties") is not False:
            found.append(f"{at}: the schema allows keys that the type does not have")
        return found + [
            difference
            for key in keys & set(hints)
            for difference in differences(root, schema["properties"][key], hints[key], f"{at}/{key}")
        ]
    if typing.get_origin(kind) not in (dict, Mapping):
        return [f"{at}: an object there, {kind} here"]
    names, values = typing.get_args(kind)
    if typing.get_origin(names) is Literal:  # all of them, each of the same kind
        found = literal(schema["properties"], names, at)
        found += literal(schema["required"], names, at)
        return found + [d for one in schema["properties"].values() for d in differences(root, one, values, at)]
    further = schema.get("additionalProperties", True)
    if isinstance(further, dict):
        return differences(root, further, values, f"{at}/*")
    return [] if further is True and values is Any else [f"{at}: anything there, {values} here"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema_and_type_say_the_same(name):
    schema = load_schema(name)
    assert differences(schema, schema, DOCUMENTS[name]) == []


def changes(schema, path=()):
    """Yield copies of a schema, each with one thing changed."""
    at = schema
    for step in path:
        at = at[step]
    if not isinstance(at, dict):
        return
    for key in at.get("properties", {}):
        yield edited(schema, path, lambda o, k=key: _drop(o, k))
        yield edited(schema, path, lambda o, k=key: _require_or_not(o, k))
    if at.get("additionalProperties") is False:
        yield edited(schema, path, lambda o: o["properties"].update(surplus={"type": "string"}))
    if isinstance(at.get("type"), str) and at["type"] in PLAIN:
        yield edited(schema, path, lambda o: o.update(type="null" if o["type"] != "null" else "string"))
    if "enum" in at:
        yield edited(schema, path, lambda o: o["enum"].append("surplus"))
        yield edited(schema, path, lambda o: o["enum"].pop())
    for key, value in at.items():
        if key not in ("required", "enum") and isinstance(value, dict):
            yield from changes(schema, (*path, key))


def _drop(at, key):
    del at["properties"][key]
    at["required"] = [other for other in at.get("required", []) if other != key]


def _require_or_not(at, key):
    required = at.setdefault("required", [])
    required.remove(key) if key in required else required.append(key)


def edited(schema, path, edit):
    copied = copy.deepcopy(schema)
    at = copied
    for step in path:
        at = at[step]
    edit(at)
    return copied


@pytest.mark.parametrize("name", DOCUMENTS)
def test_any_change_of_a_schema_is_noticed(name):
    schema = load_schema(name)
    changed = list(changes(schema))
    assert len(changed) > 200
    unnoticed = [place(schema, one) for one in changed if not differences(one, one, DOCUMENTS[name])]
    free = {"config", "environment", "resources", "host_state"}  # of which no type knows the keys
    assert [where for where in unnoticed if not free & set(where)] == []


def place(one, other, path=()):
    """Return where two documents differ first."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other:
                return (*path, key)
            if one[key] != other[key]:
                return place(one[key], other[key], (*path, key))
    return path


def test_a_type_that_lacks_a_key_is_noticed():
    class Pair(TypedDict):
        order: Literal[0, 1]
        base: list[float]
        head: list[int]
        surplus: str

    schema = load_schema("samples-1.json")
    found = differences(schema, schema["$defs"]["pair"], Pair)
    assert {d.partition(":")[0] for d in found} == {"/disturbed", "/place", "/surplus", "/head[]"}
