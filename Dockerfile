# Two images from one file, on the set-up script of the quick start:
#
#   deploy/images/build                      both, with labels of this checkout, by docker, podman or buildah
#   docker build --target planner -t penstock-planner .
#   docker build --target worker  -t penstock-worker .                              CPU, Gloo
#   docker build --target worker  -t penstock-worker-cuda --build-arg DEVICE=cuda . CUDA 13, NCCL
#
# What is shipped is made from nothing: the programs, the shared libraries that they load, and a bill of materials
# (usr/share/doc/penstock/sbom.spdx.json). There is no shell in it; processes run as user 10001 and write nowhere but in
# volumes, so that the root file system may be read-only.
#
# BASE must be Debian 12: packages and LibTorch are those that deploy/setup installs there.
ARG BASE=debian:12
ARG DEVICE=cpu

FROM ${BASE} AS build
WORKDIR /penstock
ENV PENSTOCK_CACHE=/opt/penstock
COPY deploy/setup deploy/setup
RUN deploy/setup planner && deploy/setup images

# --- The planner and the client, without LibTorch ---
FROM build AS planner-build
COPY . .
ARG REVISION=unknown
ENV PENSTOCK_COMMIT=${REVISION}
RUN --mount=type=cache,target=/root/.cache/ccache cmake --preset planner && cmake --build build/planner --target penstock-planner penstock
ARG VERSION=unversioned
RUN deploy/images/assemble /image --program build/planner/bin/penstock-planner --program build/planner/bin/penstock \
 && install -Dm644 LICENSE /image/usr/share/doc/penstock/LICENSE \
 && deploy/images/bill_of_materials /image --name penstock-planner --version "${VERSION}"

FROM scratch AS planner
ARG VERSION=unversioned
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="penstock-planner" \
      org.opencontainers.image.description="Plans the training of large Transformers on samples of very different lengths; and the client" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/usr/local/bin HOME=/var/lib/penstock
COPY --from=planner-build /image /
# A new volume is of whom this folder is.
COPY --from=planner-build --chown=10001:10001 /image/var/lib/penstock /var/lib/penstock
# The jobs: mount a volume here, and a planner that was killed goes on where it was.
VOLUME /var/lib/penstock
WORKDIR /var/lib/penstock
USER 10001:10001
# gRPC; Prometheus metrics; grpc.health.v1 alone, for probes.
EXPOSE 7070 7071 7072
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/usr/local/bin/penstock", "health", "--planner=localhost:7072"]
ENTRYPOINT ["/usr/local/bin/penstock-planner"]
# Certificates as a Kubernetes secret of type tls has them; others, tokens or --allow-anyone: docs/security.md.
CMD ["--listen=0.0.0.0:7070", "--metrics-listen=0.0.0.0:7071", "--health-listen=0.0.0.0:7072", \
     "--store=sqlite:/var/lib/penstock/planner.db", \
     "--tls-cert=/etc/penstock/tls/tls.crt", "--tls-key=/etc/penstock/tls/tls.key", "--tls-client-ca=/etc/penstock/tls/ca.crt"]

# --- The worker and the client: LibTorch and, by DEVICE, CUDA's libraries ---
FROM build AS worker-setup-cpu
RUN deploy/setup worker && deploy/setup parquet
ENV PRESET=quickstart

FROM build AS worker-setup-cuda
RUN deploy/setup worker-cuda && deploy/setup parquet
ENV PRESET=cuda

FROM worker-setup-${DEVICE} AS worker-build
COPY . .
ARG REVISION=unknown
ENV PENSTOCK_COMMIT=${REVISION}
# No toolkit: LibTorch's headers are compiled with those of CUDA's wheels, by the C++ compiler.
RUN --mount=type=cache,target=/root/.cache/ccache cmake --preset ${PRESET} -B build/worker -DPENSTOCK_TESTS=OFF -DPENSTOCK_BENCHMARKS=OFF \
 && cmake --build build/worker --target penstock-worker penstock-tokenizer penstock-parquet
# `penstock up` starts workers, and `penstock dataset import` what reads text and Parquet, so it is with them.
COPY --from=planner-build /penstock/build/planner/bin/penstock build/worker/bin/
ARG VERSION=unversioned
ARG DEVICE
RUN deploy/images/assemble /image --program build/worker/bin/penstock-worker --program build/worker/bin/penstock \
      --program build/worker/bin/penstock-tokenizer --load /opt/penstock/tokenizers-1/lib/libonnxruntime_extensions.so \
      --program build/worker/bin/penstock-parquet \
      --wheels /opt/penstock/libtorch-2.11.0 --wheels /opt/penstock/tokenizers-1 --wheels /opt/penstock/parquet-1 --device ${DEVICE} \
 && install -Dm644 LICENSE /image/usr/share/doc/penstock/LICENSE \
 && deploy/images/bill_of_materials /image --name penstock-worker --version "${VERSION}"

FROM scratch AS worker
ARG VERSION=unversioned
ARG REVISION=unknown
ARG SOURCE=unknown
ARG DEVICE
LABEL org.opencontainers.image.title="penstock-worker" \
      org.opencontainers.image.description="One rank of a training job: runs the planner's programs with LibTorch (${DEVICE})" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="Apache-2.0"
# For NVIDIA's container runtime, which adds the driver's libraries.
ENV PATH=/usr/local/bin HOME=/var/lib/penstock NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=worker-build /image /
# A new volume is of whom this folder is.
COPY --from=worker-build --chown=10001:10001 /image/var/lib/penstock /var/lib/penstock
# Checkpoints: a volume that all workers share.
VOLUME /var/lib/penstock
WORKDIR /var/lib/penstock
USER 10001:10001
# It serves nobody: the planner has its heartbeats, and a worker that can do nothing more ends by itself.
HEALTHCHECK NONE
ENTRYPOINT ["/usr/local/bin/penstock-worker"]
