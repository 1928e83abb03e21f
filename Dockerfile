# The light install: everything on the processor, without torch. The networks are part of the package.
#   docker build -t flawsort .
#   docker run --rm -v "$PWD/data:/data" flawsort cluster /data/parts -o /data/run
FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE hatch_build.py ./
COPY tools/sbom.py ./tools/
COPY src ./src
RUN python -m venv /opt/flawsort && /opt/flawsort/bin/pip install --no-cache-dir .

FROM python:3.13-slim
RUN useradd --uid 1000 --create-home flawsort && install -d -o flawsort -g flawsort /data
COPY --from=build /opt/flawsort /opt/flawsort
# The cache may be lost: it only saves time.
ENV PATH=/opt/flawsort/bin:$PATH PYTHONUNBUFFERED=1 FLAWSORT_CACHE=/tmp/flawsort-cache
USER 1000:1000
WORKDIR /data
EXPOSE 8764 8765
# Of serve, which needs no token for this. The other commands of compose.yaml have their own, or none.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8764/health', timeout=5)"]
ENTRYPOINT ["flawsort"]
# The token is in the variable FLAWSORT_TOKEN.
CMD ["serve", "/data/run", "--host", "0.0.0.0"]
