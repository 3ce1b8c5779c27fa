# The sidecar, one per node, and the wheel that training images install beside their own torch:
#   docker build -f deploy/images/agent.Dockerfile -t paceline-agent .
# In the training image's Dockerfile:
#   COPY --from=paceline-agent /opt/paceline/wheels /tmp/wheels
#   RUN pip install --no-index /tmp/wheels/*.whl
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
# The wheel carries the NCCL plugin, which is C. It is of no Python version.
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY constraints.txt ./
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv --without-pip /opt/paceline
COPY agent agent
RUN pip wheel --no-deps --wheel-dir /opt/paceline/wheels ./agent \
 && pip --python /opt/paceline/bin/python install \
      "paceline[sidecar] @ file://$(echo /opt/paceline/wheels/paceline-*.whl)"

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --no-create-home paceline \
 && install -d -o 10001 -m 0700 /run/paceline /var/spool/paceline
COPY --from=build /opt/paceline /opt/paceline
ENV PATH=/opt/paceline/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PACELINE_RUNTIME_DIR=/run/paceline \
    PACELINE_SPOOL_DIR=/var/spool/paceline
# Rings are private to their user: run the sidecar as the user that the training job runs as.
USER 10001
# Healthy: a sidecar serves the ring directory. A collector that is away is no reason to restart it.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --start-interval=1s CMD ["python", "-c", \
  "import os, pathlib, paceline.run.plan as p; raise SystemExit(not p.sidecar_runs(pathlib.Path(os.environ['PACELINE_RUNTIME_DIR'])))"]
ENTRYPOINT ["paceline"]
CMD ["sidecar"]
