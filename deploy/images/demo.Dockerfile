# A training job to look at: four ranks on CPU, one of them slow. Build from the repository's root:
#   docker build -f deploy/images/demo.Dockerfile -t paceline-demo .
# Its records are read by a sidecar in another container (docker-compose.yml).
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm
FROM ${PYTHON_IMAGE}
WORKDIR /source
COPY constraints.txt ./
COPY tools/install.py tools/
ENV PIP_CONSTRAINT=/source/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# torch first and alone, as tools/install.py does: the layer is large and changes rarely.
RUN pip install --no-deps \
      --index-url "$(python -c 'from tools.install import TORCH_CPU_INDEX as i; print(i)')" \
      "$(python -c 'from tools.install import TORCH as t; print(t)')"
COPY agent agent
COPY service service
RUN pip install "./agent[sidecar]" ./service torch \
 && useradd --system --uid 10001 --create-home paceline \
 && install -d -o 10001 -m 0700 /run/paceline
ENV PYTHONDONTWRITEBYTECODE=1 \
    OMP_NUM_THREADS=1 \
    PACELINE_RUNTIME_DIR=/run/paceline
USER 10001
ENTRYPOINT ["paceline", "run", "--job", "demo", "--", "torchrun", "--nproc-per-node", "4", \
  "-m", "paceline_service.demo.train"]
CMD ["--steps", "20000"]
