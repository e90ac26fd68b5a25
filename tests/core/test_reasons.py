"""Reasons are codes with a meaning, each of them one that the worker really gives."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from consumer.core import reasons

CONSUMER = Path(reasons.__file__).parents[1]
every_kind = pytest.mark.parametrize("kind", reasons.KINDS.values(), ids=lambda kind: kind.__name__)


def used_reasons() -> set[tuple[str, str]]:
    """Return (enumeration, member) of each reason that the product's code names."""
    own = Path(reasons.__file__)
    return {
        (ast.unparse(node.value).rpartition(".")[2], node.attr)
        for path in CONSUMER.rglob("*.py")
        if path != own
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute))
    }


def test_every_kind_is_in_the_list():
    """A new enumeration is documented and tested by being one."""
    assert set(reasons._Explained.__subclasses__()) == set(reasons.KINDS.values())


@every_kind
def test_reasons_are_codes_with_a_meaning(kind: reasons.Kind):
    """A code is unique, in lower case with dashes; its meaning fits a cell of a table."""
    assert len(kind.__members__) == len(set(map(str, kind)))
    for reason in kind:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason)
        assert len(reason) <= 63
        assert reason.meaning
        assert reason.meaning == " ".join(reason.meaning.split())
        assert not re.search(r"\||\.$", reason.meaning)


@every_kind
def test_a_reason_is_its_code(kind: reasons.Kind):
    """It is written and pickled as its code, and comes back as itself."""
    for reason in kind:
        assert f"{reason}" == str(reason) == reason.value
        assert pickle.loads(pickle.dumps(reason)) is reason


@every_kind
def test_every_reason_is_given(kind: reasons.Kind):
    """The product's code names each; what nothing gives is no reason."""
    used = used_reasons()
    assert not [name for name in kind.__members__ if (kind.__name__, name) not in used]
