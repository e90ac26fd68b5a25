"""Settings: what can be set, how it is written, and where it comes from.

``table`` is the table, a row for each; ``values`` and ``address`` are how a value is written;
``sources`` are the environment, a file and flags; ``reading`` reads all of them and judges them
together. Kafka's own properties are ``consumer.kafka.properties``. Nothing here uses a setting.
"""
