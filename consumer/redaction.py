"""What is printed where a secret was."""

from __future__ import annotations

HIDDEN = "(hidden)"
