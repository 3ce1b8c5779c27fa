# The collector: `paceline serve`. Build from the repository's root:
#   docker build -f deploy/images/collector.Dockerfile -t paceline-collector .
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY constraints.txt ./
# Constraints by environment hold for what builds the packages, too.
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Without pip: nothing is installed into a running container.
RUN python -m venv --without-pip /opt/paceline
COPY agent agent
COPY service service
RUN pip --python /opt/paceline/bin/python install \
      "./agent[sidecar]" "./service[nats,oidc,postgresql]"

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --no-create-home --home-dir /var/lib/paceline paceline \
 && install -d -o 10001 -m 0700 /var/lib/paceline
COPY --from=build /opt/paceline /opt/paceline
ENV PATH=/opt/paceline/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PACELINE_STATE_DIR=/var/lib/paceline \
    PACELINE_SERVE_HOST=0.0.0.0
# By number: Kubernetes has to see that it is not root.
USER 10001
VOLUME /var/lib/paceline
EXPOSE 8750
# Ready, not only alive: what waits for a healthy collector wants to send to it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --start-interval=1s CMD ["python", "-c", \
  "import urllib.request as r; r.urlopen('http://127.0.0.1:8750/readyz', timeout=2)"]
ENTRYPOINT ["paceline"]
CMD ["serve"]
