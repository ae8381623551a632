# Image scanner-operator: the manager, a static program on an empty base.
#
# Builds the same image as "make images" does without Docker (hack/images), for users of Docker. The project's tests use the
# image of "make images" and never this file. The web UI is built before, which needs Node.js:
#
#   make ui
#   docker build --build-arg VERSION=0.1.0 -f Dockerfile -t scanner-operator .
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
ARG TARGETOS TARGETARCH VERSION=dev
WORKDIR /src
COPY . .
RUN test -s ui/dist/index.html.br || { echo 'The web UI is not built: run "make ui" before "docker build".' >&2; exit 1; }
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    cd . && CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X=github.com/scanner-operator/scanner-operator/workerapi/version.Version=$VERSION" -o /image/scanner-operator ./cmd/manager
# The only files that a static program may expect. Root certificates are compiled into it.
RUN mkdir -p /image/etc /image/tmp && chmod 1777 /image/tmp && \
    printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n' > /image/etc/passwd && \
    printf 'root:x:0:\nnonroot:x:65532:\n' > /image/etc/group

FROM scratch
ARG VERSION=dev
LABEL org.opencontainers.image.title="Scanner Operator: the manager" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.source="https://github.com/scanner-operator/scanner-operator" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/ /
# A numeric user, so that Kubernetes can verify that it is not root.
USER 65532:65532
ENTRYPOINT ["/scanner-operator"]
