"""Commands of ``vertex-budget`` that are more than a few lines; imported when they are run."""

from __future__ import annotations
