# shellcheck shell=bash
# Sourced: makes the images that the Dockerfile and docker-compose.yml name, out of packages, under
# the same names. For machines that reach package archives but no image registry. Needs debootstrap
# and Maven; $1 is a folder to work in. Images that are there already are left alone.

make_stand_ins() {
  local work="$1" here base root certificates=/etc/ssl/certs/ca-certificates.crt
  here="$(dirname "${BASH_SOURCE[0]}")/stand-ins"
  base=debian:bookworm-slim
  if ! docker image inspect "$base" >/dev/null 2>&1; then
    root="$work/debian"
    debootstrap --variant=minbase --include=ca-certificates,netbase,tzdata bookworm "$root" >/dev/null
    # Certificates that this machine trusts on top: archives may be behind a proxy.
    cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
    chroot "$root" update-ca-certificates >/dev/null 2>&1
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root/etc/resolv.conf"
    tar -C "$root" --one-file-system -c . | docker import \
      -c "ENV PIP_CERT=$certificates SSL_CERT_FILE=$certificates" -c 'CMD ["bash"]' - "$base" >/dev/null
    rm -rf "$root"
  fi
  if ! docker image inspect apache/kafka:4.1.0 >/dev/null 2>&1; then
    cp -r "$here/kafka" "$work/kafka"
    (cd "$work/kafka" && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime)
    docker build -q -t apache/kafka:4.1.0 "$work/kafka" >/dev/null
  fi
  docker image inspect python:3.11-slim-bookworm >/dev/null 2>&1 ||
    docker build -q -t python:3.11-slim-bookworm "$here/python" >/dev/null
  docker image inspect prom/prometheus:v2.42.0 >/dev/null 2>&1 ||
    docker build -q -t prom/prometheus:v2.42.0 "$here/prometheus" >/dev/null
}
