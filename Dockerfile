# The node (target `ottla`, also when no target is given) and the metadata pipeline (target `spark`).
#
# Stands in for the apache/kafka image: same user, directories, environment and entry, and the tools by their names there.
# Python's own image on both stages, so that a virtual environment made in one runs in the other.
FROM python:3.11-slim-bookworm AS python

FROM python AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/ottla
WORKDIR /src
# What we depend on changes less often than we do.
COPY pyproject.toml ./
RUN python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
        > requirements.txt \
    && /opt/ottla/bin/pip install -r requirements.txt
# boto3 knows all of Amazon's services; S3 is used here, and what gives credentials for it.
RUN cd /opt/ottla/lib/python3.11/site-packages/botocore/data \
    && find . -mindepth 1 -maxdepth 1 -type d ! -name s3 ! -name sts ! -name 'sso*' ! -name signin -exec rm -r {} +
COPY . ./
RUN /opt/ottla/bin/pip install --no-deps . \
    && /opt/ottla/bin/pip uninstall --yes pip setuptools \
    && /opt/ottla/bin/python -m compileall -q -j 0 /opt/ottla/lib

FROM python AS node
RUN useradd --create-home --uid 1000 appuser \
    && mkdir -p /etc/kafka/docker /etc/kafka/secrets /mnt/shared/config /opt/kafka/bin /var/lib/kafka/data \
    && printf '#!/bin/sh\nexec /opt/ottla/bin/python -m broker.cli.node.container "$@"\n' > /etc/kafka/docker/run \
    && printf '%s\n' \
        process.roles=broker,controller node.id=1 controller.quorum.voters=1@localhost:9093 \
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093 advertised.listeners=PLAINTEXT://localhost:9092 \
        controller.listener.names=CONTROLLER \
        > /etc/kafka/docker/server.properties \
    && for tool in acls broker-api-versions client-metrics cluster configs console-consumer console-producer consumer-groups \
            delegation-tokens delete-records dump-log e2e-latency features get-offsets groups leader-election log-dirs metadata-quorum \
            metadata-shell reassign-partitions replica-verification share-groups storage streams-groups topics transactions \
            verifiable-consumer verifiable-producer; do \
        printf '#!/bin/sh\nexec /opt/ottla/bin/ottla %s "$@"\n' "$tool" > "/opt/kafka/bin/kafka-$tool.sh"; \
    done \
    && for tool in consumer-perf producer-perf; do \
        printf '#!/bin/sh\nexec /opt/ottla/bin/ottla %s "$@"\n' "$tool" > "/opt/kafka/bin/kafka-$tool-test.sh"; \
    done \
    && chmod 0755 /etc/kafka/docker/run /opt/kafka/bin/*.sh \
    && chown -R appuser:appuser /etc/kafka/secrets /mnt/shared/config /var/lib/kafka
ENV PATH=/opt/ottla/bin:$PATH PYTHONUNBUFFERED=1

FROM node AS ottla
COPY --from=build /opt/ottla /opt/ottla
USER appuser
WORKDIR /home/appuser
EXPOSE 9092 9644
VOLUME ["/etc/kafka/secrets", "/mnt/shared/config", "/var/lib/kafka/data"]
# SIGTERM, which is what docker sends, is a controlled shutdown; it needs up to a heartbeat of the others.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["python", "-m", "broker.http.probe"]
CMD ["/etc/kafka/docker/run"]

FROM build AS build-spark
RUN python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['spark'], sep='\n')" \
        > requirements-spark.txt \
    && python3 -m pip install --prefix /opt/ottla -r requirements-spark.txt

FROM node AS spark
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir /var/lib/pipeline \
    && chown appuser:appuser /var/lib/pipeline
COPY --from=build-spark /opt/ottla /opt/ottla
USER appuser
WORKDIR /home/appuser
VOLUME ["/var/lib/pipeline"]
ENTRYPOINT ["python", "-m", "spark_jobs.metadata_snapshots"]

# What is built when nothing is said.
FROM ottla
