#!/bin/sh
# Runs shell commands in a virtual machine that has KVM, on a host that has none: QEMU emulates a CPU with AMD's SVM, and the
# kernel in it runs machines of its own. It shows what cpumax does with KVM. Times are not to be believed: a sleep there may be
# over 0.3 s late.
#
#   sh bench/kvm.sh BIN IMAGE_DEB COMMANDS
#   sh bench/kvm.sh target/release linux-image-*.deb 'cpumax run small-quota --on vm --kernel 6.12 --mode parallel'
#
# BIN is the folder with cpumax, and the guest is where `make guest` puts it from there (../guest/release); IMAGE_DEB is the
# package of the kernel 6.12 of `cpumax lab list`, which has its modules (apt-get download linux-image-RELEASE). The commands run in
# a folder that has scenarios/, and find the kernels of KERNELS in cpumax's cache. Needs qemu-system-x86, busybox-static, cpio and xz-utils; it keeps nothing, and takes some two minutes for that.
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
# QEMU 7.2 does not tell KVM of `xsetbv`, and their ideas of what is saved part.
: "${CPU:=max,-xsave}" "${SCENARIOS:=scenarios}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
root=$work/root
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/root/.cache/cpumax/kernels" "$root/usr/bin" "$root/usr/share"

inner=$(command -v qemu-system-x86_64)
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$inner" "$bin/cpumax" "$bin/../guest/release/cpumax-guest" "$root/usr/bin"
# Both are linked with libraries.
ldd "$inner" "$bin/cpumax" | grep -o '/[^ ]* (' | cut -d ' ' -f 1 | sort -u | xargs cp -L --parents -t "$root"
modules=/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so
if [ -e "$modules" ]; then cp --parents "$modules" "$root"; fi
cp -RL /usr/share/qemu /usr/share/seabios "$root/usr/share"
for kernel in $KERNELS; do cp -R "$cache/$kernel" "$root/root/.cache/cpumax/kernels"; done
cp -R "$SCENARIOS" "$root/root/scenarios"
dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work" --wildcards '*/vmlinuz*' '*/irqbypass.ko*' '*/kvm.ko*' '*/kvm-amd.ko*'
find "$work/usr" -name '*.ko.xz' -exec xz -d {} +
# KVM calls the task register busy, as all CPUs do, but QEMU's has no rights to ports with one that is. So KVM must not, and is no
# longer what was signed.
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
# While there is a machine the kernel does not patch its code for the first one nor back after the last, of which an emulated CPU
# may see half.
qemu-system-x86_64 -accel kvm -machine none -nodefaults -display none -S &
cd /root
setsid cttyhack sh /commands
echo "The commands have ended: $?"
poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) >"$work/initramfs"
rm -rf "$root"

# One that has crashed may not end.
timeout "$SECONDS_AT_MOST" "$QEMU" -nodefaults -no-user-config -display none -no-reboot -machine pc -accel tcg,thread=multi -cpu "$CPU" \
	-smp "$CPUS" -m "$MEMORY" -serial stdio -kernel "$work"/boot/vmlinuz* -initrd "$work/initramfs" \
	-append "console=ttyS0 panic=-1 rdinit=/init quiet $ARGUMENTS"
