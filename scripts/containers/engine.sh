# shellcheck shell=bash
# Sourced: starts a Docker engine of its own on Debian 12, with the Compose and buildx plugins, for
# machines where none runs. All that it writes besides the packages lies in the folder given.
#
# The plugins come from the next Debian release, unpacked and not installed: they need only a C
# library that this one has.

can_start_engine() {
  # shellcheck source=/dev/null
  if [ "$(. /etc/os-release && echo "${ID:-}${VERSION_ID:-}")" != debian12 ] || [ "$(id -u)" != 0 ]; then
    echo "an engine can be started on Debian 12 as root only" >&2
    return 1
  fi
}

start_engine() {
  local home="$1"
  # First in the path: a Docker client that lies elsewhere may not find the plugins.
  export PATH="/usr/bin:$PATH" DOCKER_HOST="unix://$home/socket" DOCKER_CONFIG="$home/config"
  mkdir -p "$home"/{sources,lists/partial,archives/partial,config/cli-plugins}
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    docker.io debootstrap >/dev/null
  sed 's/bookworm/trixie/g' /etc/apt/sources.list.d/debian.sources >"$home/sources/next.sources"
  local next=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$home/sources"
    -o "Dir::State::Lists=$home/lists" -o "Dir::Cache=$home" -o APT::Sandbox::User=root)
  apt-get "${next[@]}" update -qq
  (
    cd "$home" || exit 1
    apt-get "${next[@]}" download -qq docker-compose docker-buildx
    for package in *.deb; do dpkg -x "$package" unpacked; done
  )
  cp "$home"/unpacked/usr/libexec/docker/cli-plugins/* "$home/config/cli-plugins/"
  # In a session of its own: a signal to this script's group must not take the engine from what
  # still has containers to stop.
  setsid /usr/sbin/dockerd --data-root "$home/data" --exec-root "$home/run" --pidfile "$home/pid" \
    --host "$DOCKER_HOST" >"$home/engine.log" 2>&1 &
  timeout 60 sh -c 'until docker version >/dev/null 2>&1; do sleep 0.3; done' || {
    tail -20 "$home/engine.log" >&2
    return 1
  }
}

stop_engine() {
  local home="$1" engine
  engine="$(cat "$home/pid" 2>/dev/null)" || return 0
  kill "$engine" 2>/dev/null || return 0
  timeout 60 tail --pid="$engine" -f /dev/null || true
  ip link del docker0 2>/dev/null || true
}
