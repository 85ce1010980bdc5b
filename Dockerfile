# The image of this package: docker build -t horovod .        (docs/containers.md has the rest)
#
# Arguments, each with --build-arg NAME=VALUE:
#   BASE           what both stages start from: a Debian or Ubuntu with Python 3.10 or later
#   CUDA           0: PyTorch for the CPU. 1, or a version such as 12.8: PyTorch with CUDA, several gigabytes
#   TORCH_VERSION  of PyTorch; TORCH_INDEX: a package index to take it from, instead of PyTorch's own
#   EXTRAS         of pyproject.toml, whose packages are installed as well
#   VERSION, REVISION   for the labels: this package's version, and the commit that was built
ARG BASE=debian:bookworm-slim

# What builds. Nothing of it is shipped but what is copied out of these stages below.
FROM ${BASE} AS builder
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends g++ make python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
# With SOURCE_DATE_EPOCH, compiled Python files hold hashes of their sources instead of times, which are rounded on the way
# from one stage into another: a rank would compile again what seems to have changed. Which second it names does not matter.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 SOURCE_DATE_EPOCH=1767225600
RUN python3 -m venv /opt/horovod

# The wheel. It is installed below /package, to be laid over the environment.
FROM builder AS wheel
COPY setup.py pyproject.toml CMakeLists.txt MANIFEST.in LICENSE README.md ./
COPY build_support build_support
COPY horovod horovod
# For who builds it often, as the tests do: a compiler's cache that is mounted, and what it was filled with.
ARG CMAKE_CXX_COMPILER_LAUNCHER
ARG HOROVOD_DEVELOPER
# No GPU is seen while an image is built: a base image that has CUDA's compiler asks for it.
RUN if command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; then export HOROVOD_WITH_CUDA=1; fi \
    && /opt/horovod/bin/pip wheel --quiet --no-deps --wheel-dir /wheels . \
    && /opt/horovod/bin/pip install --quiet --no-deps --root /package /wheels/*.whl
ARG EXTRAS=examples,lab,test
COPY scripts/requirements_of.py scripts/
RUN /opt/horovod/bin/pip install --quiet packaging \
    && PYTHONPATH="$(echo /package/opt/horovod/lib/python3*/site-packages)" \
       /opt/horovod/bin/python scripts/requirements_of.py --always $(echo "${EXTRAS}" | tr , ' ') \
       | grep -v '^playwright' > /requirements.txt  # it drives a browser, and there is none here

# Everything but this package. PyTorch comes first: the list of requirements changes more often.
FROM builder AS packages
ARG TORCH_VERSION=2.13.0
ARG TORCH_INDEX=
ARG CUDA=0
COPY scripts/install_torch.sh scripts/
RUN TORCH_VERSION="${TORCH_VERSION}" TORCH_INDEX="${TORCH_INDEX}" CUDA="${CUDA}" \
    bash scripts/install_torch.sh /opt/horovod/bin/python
COPY --from=wheel /requirements.txt /
RUN /opt/horovod/bin/pip install --quiet --requirement /requirements.txt

# What is shipped: Python, its environment, ssh, and nothing that compiles.
FROM ${BASE}
# Host keys that a package made would be the same, and known, in every container: they are removed in the same layer.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
       ca-certificates openssh-client openssh-server python3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log /etc/ssh/ssh_host_* \
    && if id 1000 >/dev/null 2>&1; then userdel --remove "$(id -nu 1000)"; fi \
    && useradd --uid 1000 --create-home --shell /bin/bash mpiuser \
    && install -d -m 700 -o mpiuser -g mpiuser /home/mpiuser/.ssh
COPY deploy/container/ssh_config /etc/ssh/ssh_config.d/horovod.conf
COPY deploy/container/sshd_config /home/mpiuser/.sshd_config
COPY --from=packages /opt/horovod /opt/horovod
COPY --from=wheel /package/ /
# Sources for reading and for the tests; the package that runs is the one in /opt/horovod.
COPY --chown=1000:1000 . /home/mpiuser/sources
RUN ln -s sources/examples /home/mpiuser/examples

ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="horovod" \
      org.opencontainers.image.description="Horovod for PyTorch: data-parallel training whose gradients travel compressed" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.documentation="docs/containers.md" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/horovod/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
USER mpiuser
WORKDIR /home/mpiuser
# Only for workers that others log in to: `/usr/sbin/sshd -De -f /home/mpiuser/.sshd_config`.
EXPOSE 2222
CMD ["horovodrun", "--check-build"]
