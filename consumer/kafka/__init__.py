"""The Kafka client, as the worker uses it: properties, consumer, columns."""
