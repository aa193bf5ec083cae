# The node (target `ottla`, also when no target is given) and the metadata pipeline (target `spark`).
#
# Replaces the apache/kafka image: same user, directories, environment and entry point, and the tools by their names there.
# Debian's Python in all stages, so that a virtual environment made in one runs in the others. docs/containers.md has the size.
FROM debian:trixie-slim AS debian

FROM debian AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN apt-get update \
    && apt-get install -y --no-install-recommends binutils ca-certificates gcc libc6-dev python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/pip \
    && python3 -m venv --without-pip /opt/ottla
ENV PIP="/opt/pip/bin/pip --python /opt/ottla/bin/python"
WORKDIR /src
# Dependencies change less often than Ottla.
COPY pyproject.toml ./
RUN python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
        > requirements.txt \
    && $PIP install --no-compile -r requirements.txt
COPY . ./
# The commit that `ottla --version` prints: the build context has no .git.
ARG OTTLA_COMMIT
# Hot modules are compiled to one extension module; pip installs mypyc for the build alone.
RUN OTTLA_COMPILE=1 $PIP install --no-compile --no-deps .

# Leaves out what no node runs: services of Amazon other than S3 and its credentials, self-tests, highlighters of other
# languages, C sources, debug symbols.
# Bytecode is compiled here, since containers cannot write it on a read-only file system.
FROM build AS small
WORKDIR /opt/ottla/lib/python3.13/site-packages
RUN find botocore/data -mindepth 1 -maxdepth 1 -type d \
        ! -name s3 ! -name sts ! -name 'sso*' ! -name signin -exec rm -r {} + \
    && rm -r Crypto/SelfTest boto3/data boto3/examples \
    && find pygments/lexers -name '*.py' ! -name __init__.py ! -name _mapping.py -delete \
    && find . -type d -name tests -prune -exec rm -r {} + \
    && find . -type f \( -name '*.c' -o -name '*.h' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' \) -delete \
    && find . -type f -name '*.so*' -exec strip --strip-unneeded {} + \
    && /opt/ottla/bin/python -m compileall -q -j 0 /opt/ottla/lib

FROM debian AS node
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 appuser \
    && mkdir -p /etc/confluent/docker /etc/kafka/docker /etc/kafka/secrets /mnt/shared/config /opt/kafka/bin /var/lib/kafka/data \
    && printf '#!/bin/sh\nexec /opt/ottla/bin/python -m broker.cli.node.container "$@"\n' > /etc/kafka/docker/run \
    && printf '%s\n' \
        process.roles=broker,controller node.id=1 controller.quorum.voters=1@localhost:9093 \
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093 advertised.listeners=PLAINTEXT://localhost:9092 \
        controller.listener.names=CONTROLLER \
        > /etc/kafka/docker/server.properties \
    # Testcontainers' Python module edits and runs these scripts of Confluent's image. Nodes format themselves: `configure` ends
    # before the lines that the module appends.
    && : > /etc/confluent/docker/bash-config \
    && printf '#!/bin/sh\nexit 0\n' > /etc/confluent/docker/configure \
    && cp /etc/kafka/docker/run /etc/confluent/docker/launch \
    && for tool in acls broker-api-versions client-metrics configs console-consumer console-producer console-share-consumer \
            consumer-groups \
            delegation-tokens delete-records dump-log e2e-latency features get-offsets groups leader-election log-dirs metadata-quorum \
            metadata-shell reassign-partitions replica-verification share-groups storage streams-application-reset streams-groups topics transactions \
            verifiable-consumer verifiable-producer verifiable-share-consumer; do \
        printf '#!/bin/sh\nexec /opt/ottla/bin/ottla %s "$@"\n' "$tool" > "/opt/kafka/bin/kafka-$tool.sh"; \
    done \
    # Kafka's script prints its usage when it gets no action; `ottla cluster` would start a local cluster.
    && printf '#!/bin/sh\nexec /opt/ottla/bin/ottla kafka-cluster "$@"\n' > /opt/kafka/bin/kafka-cluster.sh \
    && for tool in consumer-perf producer-perf share-consumer-perf; do \
        printf '#!/bin/sh\nexec /opt/ottla/bin/ottla %s "$@"\n' "$tool" > "/opt/kafka/bin/kafka-$tool-test.sh"; \
    done \
    && chmod 0755 /etc/confluent/docker/configure /etc/confluent/docker/launch /etc/kafka/docker/run /opt/kafka/bin/*.sh \
    && chown -R appuser:appuser /etc/confluent/docker /etc/kafka/secrets /mnt/shared/config /var/lib/kafka
ENV PATH=/opt/ottla/bin:$PATH PYTHONUNBUFFERED=1

# Debian without the packages that install packages, and without what belongs to logins, other locales and other encodings. Python
# without its self-tests, its topics of help and its copy of pip; `_dbm` needs the purged libdb.
FROM node AS root
RUN dpkg --purge --force-depends --force-remove-essential --force-remove-protected \
        apt bsdutils debian-archive-keyring libapt-pkg7.0 libblkid1 libdb5.3t64 libhogweed6t64 liblastlog2-2 liblz4-1 libmount1 \
        libnettle8t64 libseccomp2 libsemanage-common libsemanage2 libsepol2 libsmartcols1 libsystemd0 libudev1 libxxhash0 login \
        login.defs mount passwd perl-base sqv sysvinit-utils util-linux \
    && cd /usr/lib/python3.13 \
    && rm -rf ensurepip pydoc_data test lib-dynload/_dbm.* lib-dynload/_test* lib-dynload/_xxtestfuzz.* \
    && rm -rf /usr/lib/*-linux-gnu/gconv /var/cache /var/lib/apt /var/lib/dpkg/info/*.symbols /var/log/* \
        /usr/bin/pinky /usr/bin/users /usr/bin/who /usr/lib/*-linux-gnu/security /usr/sbin/pam_*

FROM scratch AS ottla
COPY --from=root / /
COPY --from=small /opt/ottla /opt/ottla
ENV PATH=/opt/ottla/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONUNBUFFERED=1
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
    && $PIP install --no-compile -r requirements-spark.txt \
    && /opt/ottla/bin/python -m compileall -q -j 0 /opt/ottla/lib

FROM node AS spark
# The slim image has no folders of manuals, in which the package of Java makes links.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-21-jre-headless \
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
