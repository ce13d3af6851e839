#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds two programs of the kernel's own tree for checks: the self-tests of the cpu controller, and the scheduler scx_simple.
#
# The sources come from Debian's linux-source package through the machine's own apt, with lists and directories apart from the
# system's. Only the two programs are kept, in `sources` of the cache that `cpumax lab fetch` uses. The script needs about
# 2 GB of disk space while it runs, gcc, clang 19 and libbpf's headers, which cargo has fetched.
set -eu

version=${1:-7.3}
suites=${2:-trixie-backports}
cache=${CPUMAX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cpumax}
clang=${BPF_CLANG:-clang-19}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1)
[ -n "$mirror" ] || { echo "apt on this machine has no Debian mirror configured" >&2; exit 1; }
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/parts" "$work/tree"
: >"$work/status"
cat >"$work/parts/debian.sources" <<END
Types: deb
URIs: $mirror
Suites: $suites
Components: main
Architectures: amd64
Signed-By: $keyring
END
cat >"$work/apt.conf" <<END
Dir::State "$work";
Dir::State::lists "$work/lists/";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Cache::archives "$work/archives/";
Dir::Etc::sourceparts "$work/parts";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
END
apt() { command=$1; shift; "$command" -c "$work/apt.conf" "$@"; }
apt apt-get update -qq
release=$(apt apt-cache madison "linux-source-$version" | awk -F ' *[|] *' '{ print $2; exit }')
[ -n "$release" ] || { echo "$suites has no linux-source-$version" >&2; exit 1; }
cd "$work"
apt apt-get download -q "linux-source-$version=$release" "linux-bpf-dev=$release"
for package in ./*.deb; do
	dpkg-deb -x "$package" "$work/tree"
done
# --occurrence does not work with patterns, so tar reads the whole archive.
tar -C "$work/tree" --strip-components 1 --wildcards -xf "$work/tree/usr/src/linux-source-$version.tar.xz" \
	'*/tools/sched_ext' '*/tools/testing/selftests/cgroup' '*/tools/testing/selftests/*.h'
cd "$work/tree"

selftests=tools/testing/selftests
gcc -O1 -w -static -pthread -D_GNU_SOURCE -I "$selftests" -I "$selftests/cgroup/lib/include" \
	"$selftests/cgroup/test_cpu.c" "$selftests/cgroup/lib/cgroup_util.c" -o "$work/test_cpu"

helpers=$(find "${CARGO_HOME:-$HOME/.cargo}/registry" /usr/include -name bpf_helpers.h | head -n 1)
[ -n "$helpers" ] || { echo "libbpf's headers are missing: build the workspace first" >&2; exit 1; }
mkdir -p "$work/include"
ln -s "$(dirname "$helpers")" "$work/include/bpf"
# The loader of the tree looks constants up in the running kernel. This file takes them from the types of the same version.
cat >"$work/simple.c" <<END
#include <scx/common.bpf.h>
#undef SCX_SLICE_DFL
#undef SCX_DSQ_LOCAL
#include "scx_simple.bpf.c"
END
"$clang" -g -O2 -w -fms-extensions -D__TARGET_ARCH_x86 -mcpu=v3 -mlittle-endian -target bpf -I tools/sched_ext \
	-I tools/sched_ext/include -I "$work/include" -I usr/include/x86_64-linux-gnu/linux/bpf \
	-c "$work/simple.c" -o "$work/scx_simple.bpf.o"

mkdir -p "$cache/sources"
mv "$work/test_cpu" "$work/scx_simple.bpf.o" "$cache/sources/"
echo "built from linux-source-$version $release: $cache/sources/test_cpu, scx_simple.bpf.o"
