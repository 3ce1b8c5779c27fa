# The collector: `paceline serve`. Build from the repository's root:
#   docker build -f deploy/images/collector.Dockerfile -t paceline-collector .
FROM python:3.12-slim AS build
WORKDIR /source
COPY constraints.txt ./
COPY agent agent
COPY service service
RUN python -m venv /opt/paceline \
 && /opt/paceline/bin/pip install --no-cache-dir -c constraints.txt \
      "./agent[sidecar]" "./service[postgresql]"

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/paceline paceline
COPY --from=build /opt/paceline /opt/paceline
ENV PATH=/opt/paceline/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PACELINE_STATE_DIR=/var/lib/paceline \
    PACELINE_SERVE_HOST=0.0.0.0
USER 10001
VOLUME /var/lib/paceline
EXPOSE 8750
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["python", "-c", \
  "import urllib.request as r; r.urlopen('http://127.0.0.1:8750/readyz', timeout=2)"]
ENTRYPOINT ["paceline"]
CMD ["serve"]
