#!/bin/sh
# Runs shell commands in a virtual machine that has KVM, on a host that has none. QEMU emulates a CPU with AMD's SVM, and the kernel
# in the machine runs machines of its own. This shows how cpumax behaves with KVM. Times in it are not reliable: a sleep may end
# over 0.3 s late.
#
#   sh bench/kvm.sh BIN IMAGE_DEB COMMANDS
#   sh bench/kvm.sh target/release linux-image-*.deb 'cpumax run small-quota --on vm --kernel 6.12 --mode parallel'
#
# BIN is the directory of cpumax; the guest must be at ../guest/release from there, where `make guest` puts it. IMAGE_DEB is the
# package of the kernel 6.12 in `cpumax lab list`, which has the kernel's modules (apt-get download linux-image-RELEASE). The commands
# run in a directory that has scenarios/, and find the kernels of KERNELS in cpumax's cache. The script needs qemu-system-x86,
# busybox-static, cpio and xz-utils. It keeps nothing between runs, so each start takes some two minutes.
set -eu
if [ $# -lt 3 ] || ! [ -x "$1/cpumax" ] || ! [ -x "$1/../guest/release/cpumax-guest" ] || ! [ -f "$2" ]; then
	echo "usage: sh bench/kvm.sh FOLDER_WITH_CPUMAX IMAGE_DEB COMMANDS" >&2
	exit 2
fi
for tool in qemu-system-x86_64 busybox cpio xz dpkg-deb; do
	command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install qemu-system-x86 busybox-static cpio xz-utils" >&2; exit 1; }
done
bin=$1 deb=$2
shift 2
: "${QEMU:=qemu-system-x86_64}" "${KERNELS:=6.12}" "${CPUS:=2}" "${MEMORY:=4096}" "${ARGUMENTS:=}" "${SECONDS_AT_MOST:=1800}"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cpumax/kernels
# QEMU 7.2 does not intercept `xsetbv` for KVM, so the two would disagree about the saved state.
: "${CPU:=max,-xsave}" "${SCENARIOS:=scenarios}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
root=$work/root
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/root/.cache/cpumax/kernels" "$root/usr/bin" "$root/usr/share"

inner=$(command -v qemu-system-x86_64)
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$inner" "$bin/cpumax" "$bin/../guest/release/cpumax-guest" "$root/usr/bin"
# Both programs need shared libraries.
ldd "$inner" "$bin/cpumax" | grep -o '/[^ ]* (' | cut -d ' ' -f 1 | sort -u | xargs cp -L --parents -t "$root"
modules=/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so
if [ -e "$modules" ]; then cp --parents "$modules" "$root"; fi
cp -RL /usr/share/qemu /usr/share/seabios "$root/usr/share"
for kernel in $KERNELS; do cp -R "$cache/$kernel" "$root/root/.cache/cpumax/kernels"; done
cp -R "$SCENARIOS" "$root/root/scenarios"
dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work" --wildcards '*/vmlinuz*' '*/irqbypass.ko*' '*/kvm.ko*' '*/kvm-amd.ko*'
find "$work/usr" -name '*.ko.xz' -exec xz -d {} +
# KVM marks the task register as busy, as all CPUs do, but QEMU's CPU then denies access to I/O ports. So the bit is patched out of
# the module, which makes its signature invalid.
LC_ALL=C sed -i -e 's/\x83\xce\x02\x40\x88\x73\x0e/\x83\xce\x00\x40\x88\x73\x0e/' -e 's/~Module signature/~No module signature/' \
	"$work"/usr/lib/modules/*/kernel/arch/x86/kvm/kvm-amd.ko
LC_ALL=C grep -qaP '\x83\xce\x00\x40\x88\x73\x0e' "$work"/usr/lib/modules/*/kernel/arch/x86/kvm/kvm-amd.ko
find "$work/usr" -name '*.ko' -exec cp {} "$root" \;

printf '%s\n' "$*" >"$root/commands"
cat >"$root/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/root TERM=dumb
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
for module in irqbypass kvm kvm-amd; do insmod "/$module.ko"; done
ls -l /dev/kvm
# The kernel patches its code for the first machine and back after the last, and an emulated CPU may see half a patch. This machine
# lives all the time, so that no patch happens later.
qemu-system-x86_64 -accel kvm -machine none -nodefaults -display none -S &
cd /root
setsid cttyhack sh /commands
echo "The commands have ended: $?"
poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/initramfs"
rm -rf "$root"

# A machine that has crashed may never end.
timeout "$SECONDS_AT_MOST" "$QEMU" -nodefaults -no-user-config -display none -no-reboot -machine pc -accel tcg,thread=multi -cpu "$CPU" \
	-smp "$CPUS" -m "$MEMORY" -serial stdio -kernel "$work"/boot/vmlinuz* -initrd "$work/initramfs" \
	-append "console=ttyS0 panic=-1 rdinit=/init quiet $ARGUMENTS"
