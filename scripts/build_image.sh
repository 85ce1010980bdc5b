#!/usr/bin/env bash
# Builds the image with docker, podman or buildah, whichever is installed. Usage: build_image.sh [NAME [OPTION...]]
# Options are passed to the builder, for example --build-arg CUDA=1. Docker is used only if its engine answers.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:-horovod}
shift || true
version=$(sed -nE 's/^__version__ = "(.+)"$/\1/p' horovod/__init__.py)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
labels=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision")

if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  builder=(docker build)
elif command -v podman >/dev/null; then
  builder=(podman build)
elif command -v buildah >/dev/null; then
  builder=(buildah bud --layers)
else
  echo "nothing here builds images: install docker (and start its engine), podman or buildah" >&2
  exit 1
fi
echo "building $name with ${builder[*]}"
exec "${builder[@]}" "${labels[@]}" "$@" -t "$name" .
