# A Podman with a storage of its own in $scratch, for the scripts that source it, as tests have one (tests/src/podman.rs).

cat >"$scratch/containers.conf" <<'EOF'
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
EOF
if command -v runc >/dev/null; then
    echo 'runtime = "runc"' >>"$scratch/containers.conf"
fi
export CONTAINERS_CONF=$scratch/containers.conf

run() {
    podman --storage-driver vfs --root "$scratch/root" --runroot "$scratch/run" --tmpdir "$scratch/tmp" \
        --network-config-dir "$scratch/networks" "$@"
}
