"""Errors survive the way between processes."""

from __future__ import annotations

import pickle

import pytest

from consumer import errors

EXAMPLES = [
    errors.ConsumerError("text"),
    errors.ConfigError("VERTEX_BUDGET_PROCESSES", 0, "at least 1"),
    errors.PayloadError("open-ring", "Polygon: a ring"),
    errors.HandlerError("m:f", "it failed"),
    errors.HandlerOpenError("m:f", "no module m"),
    errors.HandlerContractError("returned int"),
    errors.ProcessError(3, "runs already"),
]


def test_every_error_is_here():
    """A new class gets an example."""
    classes = {
        item
        for item in vars(errors).values()
        if isinstance(item, type) and issubclass(item, errors.ConsumerError)
    }
    assert {type(example) for example in EXAMPLES} == classes


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_pickle_both_ways(error):
    """Class, fields and text are the same afterwards."""
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is type(error)
    assert str(again) == str(error) != ""
    assert vars(again) == vars(error)
