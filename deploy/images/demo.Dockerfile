# A training job to look at: four ranks on CPU, one of them slow. Build from the repository's root:
#   docker build -f deploy/images/demo.Dockerfile -t paceline-demo .
FROM python:3.12-slim
WORKDIR /source
COPY constraints.txt ./
COPY tools tools
RUN pip install --no-cache-dir -c constraints.txt \
      --index-url "$(python -c 'from tools.install import TORCH_CPU_INDEX; print(TORCH_CPU_INDEX)')" \
      "$(python -c 'from tools.install import TORCH; print(TORCH)')"
COPY agent agent
COPY service service
RUN pip install --no-cache-dir -c constraints.txt "./agent[sidecar]" ./service \
 && useradd --system --uid 10001 --create-home paceline \
 && install -d -o 10001 /run/paceline /var/spool/paceline
ENV PYTHONDONTWRITEBYTECODE=1 \
    OMP_NUM_THREADS=1 \
    PACELINE_RUNTIME_DIR=/run/paceline \
    PACELINE_SPOOL_DIR=/var/spool/paceline
USER 10001
ENTRYPOINT ["paceline", "run", "--job", "demo", "--", "torchrun", "--nproc-per-node", "4", \
  "-m", "paceline_service.demo.train"]
CMD ["--steps", "20000"]
