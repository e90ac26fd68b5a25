"""The flags of commands that are more than a few lines; imported when they are run.

``kafka_options`` are those that several share. What a command does is in a folder of its own
(``demo``, ``traffic``, ``trial``); ``consumer.cli`` puts them together, with exit codes and errors.
Nothing here touches a record.
"""

from __future__ import annotations
