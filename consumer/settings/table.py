"""The table of settings: names, types, ranges, defaults, and the reason for each default.

Owns what can be set. ``Settings`` is the table: each field's row (``SETTINGS``) gives the
environment variable, the flag and the TOML key, and drives parsing, ``--help``, the ``config``
command, the documentation and the tests. Where values come from is ``consumer.settings.reading``' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from consumer.core.config import FlowConfig, Mode, Ordering
from consumer.kafka.properties import is_secret, max_poll_interval_seconds
from consumer.settings import values
from consumer.settings.address import ADDRESS_FORMS, Address
from consumer.settings.values import LogFormat, LogLevel, setting

PREFIX = "VERTEX_BUDGET"
CONFIG_FILE_VARIABLE = f"{PREFIX}_CONFIG_FILE"
#: Kafka's own rule, for people.
_TOPIC_FORMS = "letters, digits, '.', '_' and '-', at most 249"
_DAY_SECONDS = 86400.0
#: Far above any budget that memory allows, and well inside 64 bits.
_MOST_VERTICES = 10**15


class Settings(BaseModel):
    """Everything that can be set, checked. See ``SETTINGS`` for the names."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        # An error's text must not carry a secret.
        hide_input_in_errors=True,
        # Lets one pass collect every allowed value, given or not.
        validate_default=True,
    )

    topics: values.Topics = setting(
        ...,
        "Topics to read, separated by commas.",
        allowed=f"one topic or more, each {_TOPIC_FORMS}",
        reason="no topic is a safe guess",
    )
    handler: values.ModuleName = setting(
        ...,
        "The code that handles records: a function of one batch, or a class.",
        allowed="module:name, importable by the handler processes",
        reason="what to do with the records is the user's",
    )
    vertex_budget: values.MaybeCount = setting(
        None,
        "Fix the budget at this many counted vertices instead of measuring it. Memory still holds.",
        unit="vertices",
        ge=1,
        le=_MOST_VERTICES,
        unset="none: measured",
        reason="a measured budget follows the traffic; a fixed one does not",
    )
    cap: values.MaybeCount = setting(
        None,
        "Most vertices that a sizing may give.",
        unit="vertices",
        ge=1,
        le=_MOST_VERTICES,
        unset="none: no cap",
        reason="both bounds are measured; a cap only adds caution",
    )
    mode: Annotated[Mode, values.LowerCase] = setting(
        Mode.ENFORCE,
        "enforce holds work under the budget; shadow shows it, and holds only what memory needs.",
        reason="an unenforced budget protects nothing",
    )
    ordering: Annotated[Ordering, values.LowerCase] = setting(
        Ordering.KEY,
        "Which records are handled one after another: those of a key, of a partition, or none.",
        reason="the order that producers choose keys for",
    )
    processes: values.MaybeCount = setting(
        None,
        "Handler processes. auto: what cores and memory allow.",
        unit="processes",
        ge=1,
        le=1024,
        unset="auto: from cores and memory",
        reason="the container's own limits decide",
    )
    memory_limit: values.MaybeBytes = setting(
        None,
        "Memory that the worker and its processes may use. auto: the container's limit.",
        unit="bytes",
        # A plain 512 was meant as megabytes, and not one process fits into less than this.
        ge=16 * 1024 * 1024,
        le=1 << 44,
        unset="auto: the container's limit",
        reason="what kills the container is its own limit",
    )
    memory_headroom: values.Ratio = setting(
        0.8,
        "Share of the memory limit that may be planned for.",
        gt=0,
        le=1,
        reason="a fifth is left for what no measurement sees: fragmentation, caches, the kernel",
    )
    deadline_headroom: values.Ratio = setting(
        0.5,
        "Share of the shorter of max.poll.interval.ms and the shutdown grace that work in flight"
        " may take.",
        gt=0,
        le=1,
        reason="handlers slow down just when they must not; half leaves room for twice the time",
    )
    shutdown_grace_seconds: values.Seconds = setting(
        30.0,
        "Seconds between SIGTERM and SIGKILL, as the container's runtime is set.",
        unit="seconds",
        gt=0,
        le=_DAY_SECONDS,
        reason="Kubernetes' terminationGracePeriodSeconds",
    )
    handler_timeout_seconds: values.MaybeSeconds = setting(
        None,
        "Time limit of one record alone; a process that exceeds it is killed.",
        unit="seconds",
        gt=0,
        le=_DAY_SECONDS,
        unset="auto: half of max.poll.interval.ms",
        reason="generous: it ends hangs, and is not the drain deadline",
    )
    warmup_messages: values.Count = setting(
        2000,
        "Records that the first measuring window needs.",
        unit="messages",
        ge=1,
        le=10_000_000,
        reason="enough to see a mix of sizes, and seconds of traffic",
    )
    warmup_seconds: values.Seconds = setting(
        2.0,
        "Handler seconds that the first measuring window needs; it ends in any case after ten"
        " times as long by the clock.",
        unit="seconds",
        gt=0,
        le=3600.0,
        reason="thousands of pings take milliseconds, too short to time",
    )
    remeasure_interval_seconds: values.Seconds = setting(
        60.0,
        "Seconds between published sizings; a change of traffic publishes at once.",
        unit="seconds",
        ge=1,
        le=_DAY_SECONDS,
        reason="a few scrapes long, so that every sizing is seen",
    )
    commit_interval_seconds: values.Seconds = setting(
        1.0,
        "Seconds between commits of what is done.",
        unit="seconds",
        ge=0.05,
        le=3600.0,
        reason="a kill repeats about a second of work; more commits load the broker",
    )
    max_attempts: values.Count = setting(
        5,
        "Attempts of a record whose handler asks for a retry, the first included.",
        unit="attempts",
        ge=1,
        le=1000,
        reason="with backoff about fifteen seconds: longer than most restarts of a database",
    )
    max_uncommitted_messages: values.Count = setting(
        100_000,
        "Most records finished above the committed end of a partition before it is paused.",
        unit="messages",
        ge=1,
        le=100_000_000,
        reason="what a kill may repeat behind one slow record",
    )
    dlq_topic: values.MaybeTopic = setting(
        None,
        "Topic of records that cannot be handled.",
        allowed=f"a topic: {_TOPIC_FORMS}",
        unset="auto: <topic>.dlq",
        reason="one for each topic, found by its name",
    )
    output_topic: values.MaybeTopic = setting(
        None,
        "Topic of the records that the handler returns.",
        allowed=f"a topic: {_TOPIC_FORMS}",
        unset="none: returned records are dropped",
        reason="most handlers write elsewhere",
    )
    join_layer: values.MaybeText = setting(
        None,
        "GeoJSON file of polygons that consumer.handlers:join joins against.",
        allowed="a path that the handler processes can read",
        unset="none",
        reason="only that handler needs it",
    )
    join_property: values.MaybeText = setting(
        None,
        "Property of the joined polygon that consumer.handlers:join returns.",
        allowed="a property's name",
        unset="none: the polygon's id or position",
        reason="layers name things differently",
    )
    oauth_cb: values.MaybeModuleName = setting(
        None,
        "Function that returns an OAUTHBEARER token: librdkafka's oauth_cb.",
        allowed="module:name",
        unset="none",
        reason="only sasl.mechanism OAUTHBEARER needs it",
    )
    http_address: values.ListenAddress = setting(
        Address("", 9464),
        "Where /metrics, /healthz, /readyz and /budget are served.",
        allowed=ADDRESS_FORMS,
        reason="the port of OpenTelemetry's Prometheus exporter",
    )
    log_format: Annotated[LogFormat, values.LowerCase] = setting(
        LogFormat.TEXT,
        "How log lines are written.",
        reason="people read it first",
    )
    log_level: Annotated[LogLevel, values.LowerCase] = setting(
        LogLevel.INFO,
        "The least severe log line that is written.",
        reason="one line a sizing and one a state change",
    )
    record: values.MaybeText = setting(
        None,
        "File that everything the core is told is written to, to be replayed: offsets, sizes and"
        " hashes of keys, no payloads; at most 256 MiB.",
        allowed="a path in a folder that can be written to",
        unset="none",
        reason="it is for the hunt for a fault",
    )
    #: librdkafka property -> value, secrets read from their files
    kafka: Mapping[str, str] = Field(default_factory=dict, repr=False)

    @field_validator("*", mode="after")
    @classmethod
    def _collect(cls, value: object, info: ValidationInfo) -> object:
        """Hand each allowed value to the caller's context, also when another is not allowed."""
        if info.context is not None:
            info.context[info.field_name] = value
        return value

    @property
    def max_poll_interval_seconds(self) -> float:
        """``max.poll.interval.ms`` in seconds: as given, or the client's default."""
        return max_poll_interval_seconds(self.kafka)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be printed: the values of secret properties."""
        return tuple(value for name, value in self.kafka.items() if is_secret(name))

    def flow_config(
        self, processes: int, max_poll_interval_seconds: float | None = None
    ) -> FlowConfig:
        """Return what the core is told; ``processes`` is the pool's size, decided by the host."""
        return FlowConfig(
            processes=processes,
            ordering=self.ordering,
            mode=self.mode,
            memory_headroom_ratio=self.memory_headroom,
            deadline_headroom_ratio=self.deadline_headroom,
            max_poll_interval_seconds=max_poll_interval_seconds or self.max_poll_interval_seconds,
            shutdown_grace_seconds=self.shutdown_grace_seconds,
            warmup_messages=self.warmup_messages,
            warmup_seconds=self.warmup_seconds,
            remeasure_interval_seconds=self.remeasure_interval_seconds,
            commit_interval_seconds=self.commit_interval_seconds,
            handler_timeout_seconds=self.handler_timeout_seconds,
            fixed_vertices=self.vertex_budget,
            cap_vertices=self.cap,
            max_uncommitted_messages=self.max_uncommitted_messages,
            max_attempts=self.max_attempts,
            outputs=self.output_topic is not None,
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    #: the field of ``Settings``, and the TOML key
    name: str
    help: str
    #: "vertices", "bytes", "seconds", ...; empty for names, words and ratios
    unit: str
    #: the allowed range, for people
    allowed: str
    #: the default, for people
    default: str
    #: why that default
    reason: str

    @property
    def variable(self) -> str:
        """The environment variable."""
        # The article's own name: VERTEX_BUDGET, not VERTEX_BUDGET_VERTEX_BUDGET.
        return PREFIX if self.name == "vertex_budget" else f"{PREFIX}_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The flag of ``vertex-budget run``."""
        return f"--{self.name.replace('_', '-')}"


def shown(value: object) -> str:
    """Return a setting's value as people write it; None is shown by its row's ``default``."""
    if isinstance(value, tuple) and not isinstance(value, Address):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rows() -> tuple[Setting, ...]:
    rows = []
    for name, field in Settings.model_fields.items():
        about = field.json_schema_extra
        if not isinstance(about, dict):
            continue
        default = "(required)" if field.is_required() else shown(field.default)
        rows.append(
            Setting(
                name=name,
                help=field.description or "",
                unit=str(about["unit"]),
                allowed=str(about["allowed"]),
                default=str(about["unset"]) if field.default is None else default,
                reason=str(about["reason"]),
            )
        )
    return tuple(rows)


#: The table: every setting but the path of the TOML file and the Kafka properties.
SETTINGS: tuple[Setting, ...] = _rows()
