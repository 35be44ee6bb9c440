# A container with the installed program. The first stage builds and runs all tests.
#     docker build -t norma .
#     docker run --rm -v "$PWD:/work" norma train recipe.ini
FROM debian:bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends make ca-certificates
WORKDIR /norma
COPY . .
RUN make test
RUN make install BUILD=build-release PREFIX=/usr/local DESTDIR=/install

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
    libgomp1 libjansson4 libutf8proc2 libxxhash0 libnettle8 libprotobuf-c1 zlib1g liblzma5 libzstd1 \
    libjpeg62-turbo libpng16-16 \
    libarchive13 openmpi-bin gnuplot-nox && rm -rf /var/lib/apt/lists/*
COPY --from=build /install/usr/local /usr/local
WORKDIR /work
ENTRYPOINT ["norma"]
