# Two images from one file, on the set-up script of the quick start:
#
#   docker build --target planner -t penstock-planner .
#   docker build --target worker  -t penstock-worker .     (CPU, Gloo)
#
# BASE must be Debian 12: packages and LibTorch are those that deploy/setup installs there.
ARG BASE=debian:12

FROM ${BASE} AS build
WORKDIR /penstock
COPY deploy/setup deploy/setup
RUN deploy/setup planner

# --- The planner and the client, without LibTorch ---
FROM build AS planner-build
COPY . .
RUN cmake --preset planner && cmake --build build/planner --target penstock-planner penstock

FROM ${BASE} AS planner
COPY deploy/setup /tmp/setup
RUN /tmp/setup planner-runtime && rm -rf /tmp/setup /var/lib/apt/lists/* && useradd --system --uid 10001 penstock
COPY --from=planner-build /penstock/build/planner/bin/penstock-planner /penstock/build/planner/bin/penstock /usr/local/bin/
# The jobs: mount a volume here, and a planner that was killed goes on where it was.
RUN install -d -o penstock -g penstock /var/lib/penstock
VOLUME /var/lib/penstock
USER penstock
# gRPC, and Prometheus metrics.
EXPOSE 7070 7071
ENTRYPOINT ["penstock-planner"]
# Certificates as a Kubernetes secret of type tls has them; others, tokens or --allow-anyone: docs/security.md.
CMD ["--listen=0.0.0.0:7070", "--metrics-listen=0.0.0.0:7071", "--store=sqlite:/var/lib/penstock/planner.db", \
     "--tls-cert=/etc/penstock/tls/tls.crt", "--tls-key=/etc/penstock/tls/tls.key", "--tls-client-ca=/etc/penstock/tls/ca.crt"]

# --- The worker, on CPU ---
FROM build AS worker-build
ENV PENSTOCK_CACHE=/opt/penstock
RUN deploy/setup worker
COPY . .
RUN cmake --preset quickstart && cmake --build build/quickstart --target penstock-worker
# Only what a CPU worker loads: libtorch_cuda.so alone is larger than all of it.
RUN cd /opt/penstock/libtorch-2.11.0 && mkdir -p /runtime/torch/lib /runtime/nvidia/cu13/lib \
 && cp torch/lib/libtorch_cpu.so torch/lib/libc10.so torch/lib/libgomp.so.1 /runtime/torch/lib/ \
 && cp nvidia/cu13/lib/libcudart.so.13 nvidia/cu13/lib/libcupti.so.13 /runtime/nvidia/cu13/lib/

FROM ${BASE} AS worker
COPY deploy/setup /tmp/setup
RUN /tmp/setup planner-runtime && rm -rf /tmp/setup /var/lib/apt/lists/* && useradd --system --uid 10001 penstock
COPY --from=worker-build /runtime /opt/penstock/libtorch-2.11.0
COPY --from=worker-build /penstock/build/quickstart/bin/penstock-worker /usr/local/bin/
USER penstock
ENTRYPOINT ["penstock-worker"]
