# The image of `cargo xtask image`, for who would rather build it with a daemon: docker build --tag trainyard:0.1.0 .
# It has nothing but the binary in it, linked with musl; the bill of materials is only in the other's.
FROM rust:1.95.0-alpine AS build
# the C parts: SQLite, the allocator, cryptography
RUN apk add --no-cache build-base
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package trainyard

FROM scratch
COPY --from=build /src/target/release/trainyard /trainyard
USER 65532:65532
ENTRYPOINT ["/trainyard"]
LABEL org.opencontainers.image.title=trainyard org.opencontainers.image.licenses=Apache-2.0
