# The worker: `docker build -t vertex-budget .`, then
#   docker run --memory 512m --stop-timeout 40 --read-only --tmpfs /tmp \
#     -e VERTEX_BUDGET_TOPICS=town -e VERTEX_BUDGET_HANDLER=consumer.handlers:validate \
#     -e KAFKA_BOOTSTRAP_SERVERS=kafka:9092 -e KAFKA_GROUP_ID=town vertex-budget
# A release pins the base by digest: --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@...
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
# The environment gets no pip of its own: the one of the base installs into it.
RUN python -m venv --without-pip /opt/venv
ENV PIP_CONSTRAINT=/src/requirements/ci.lock \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1
# The dependencies alone first: a change of the source keeps this layer. Wheels only: nothing is
# compiled, so nothing has to be there to compile with. Their test suites are not for running here.
COPY pyproject.toml ./
COPY requirements/ci.lock requirements/
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > dependencies.txt \
 && pip --python /opt/venv/bin/python install --only-binary :all: -r dependencies.txt \
 && find /opt/venv -type d -name tests -prune -exec rm -rf {} +
COPY README.md LICENSE ./
COPY sizing sizing
COPY consumer consumer
RUN pip --python /opt/venv/bin/python install --no-deps .

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="vertex-budget" \
      org.opencontainers.image.description="A Kafka stream worker for geospatial payloads that sizes its own backpressure" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Fixed numbers, so that a cluster's policy and a volume's owner can name them.
RUN groupadd --system --gid 10001 worker \
 && useradd --system --uid 10001 --gid 10001 --home-dir /app --no-create-home --shell /usr/sbin/nologin worker
COPY --from=build /opt/venv /opt/venv
COPY deploy/healthcheck.py /opt/healthcheck.py
# MALLOC_ARENA_MAX: glibc gives each thread an arena of its own, up to eight for each core of the
#   host, and each keeps what was once its peak. The Kafka clients start a dozen threads: in a
#   small container that is memory which nobody has asked for.
# PYTHONPATH: a handler of your own is copied or mounted to /app and named as module:name.
# PYTHONDONTWRITEBYTECODE: the file system may be read-only; the libraries are compiled already.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MALLOC_ARENA_MAX=2
WORKDIR /app
USER 10001:10001
EXPOSE 9464
# Drains, commits and leaves; a second signal leaves at once.
STOPSIGNAL SIGTERM
# Whether to restart it. Whether it works is another question: /readyz.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-S", "/opt/healthcheck.py", "/healthz"]
ENTRYPOINT ["vertex-budget"]
CMD ["run"]
