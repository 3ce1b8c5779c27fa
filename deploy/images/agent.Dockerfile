# The agent and its sidecar, without torch: one sidecar container per node. The training image
# installs the same distribution (`pip install paceline`) beside its own torch.
#   docker build -f deploy/images/agent.Dockerfile -t paceline-agent .
FROM python:3.12-slim AS build
WORKDIR /source
COPY constraints.txt ./
COPY agent agent
RUN python -m venv /opt/paceline \
 && /opt/paceline/bin/pip install --no-cache-dir -c constraints.txt "./agent[sidecar]"

FROM python:3.12-slim
RUN useradd --system --uid 10001 --no-create-home paceline \
 && install -d -o 10001 /run/paceline /var/spool/paceline
COPY --from=build /opt/paceline /opt/paceline
ENV PATH=/opt/paceline/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PACELINE_RUNTIME_DIR=/run/paceline \
    PACELINE_SPOOL_DIR=/var/spool/paceline
# Rings are private to their user: run the sidecar as the user that the training job runs as.
USER 10001
# Healthy: a sidecar serves the ring directory. A collector that is away is no reason to restart it.
HEALTHCHECK --interval=30s --timeout=10s --start-period=20s CMD ["python", "-c", \
  "import os, pathlib, paceline.run.plan as p; raise SystemExit(not p.sidecar_runs(pathlib.Path(os.environ['PACELINE_RUNTIME_DIR'])))"]
ENTRYPOINT ["paceline"]
CMD ["sidecar"]
