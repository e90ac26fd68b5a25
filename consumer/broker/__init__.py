"""A real Apache Kafka from Python packages alone, for tests, benchmarks and the demo.

Owns: Kafka's jars, one to three nodes as child processes, their data and their logs, and the
topics made on them. Does not own: consuming or producing. The worker itself imports none of it.
Needs the extra ``kafka`` (a Java runtime in a wheel, a Maven resolver), imported at a start.
"""

from __future__ import annotations

from consumer.broker.admin import BrokerError, KafkaAdmin
from consumer.broker.java import KAFKA_VERSION
from consumer.broker.real_kafka import FOR_TESTS, RealKafka

__all__ = ["FOR_TESTS", "KAFKA_VERSION", "BrokerError", "KafkaAdmin", "RealKafka"]
