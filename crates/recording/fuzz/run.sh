#!/bin/sh
# Builds the fuzzers with a stable compiler (cargo-fuzz's flags without the sanitizer: the readers have no unsafe code), and
# runs each for so many seconds, side by side. Fails if one finds a fault.
set -eu
cd "$(dirname "$0")"
target=x86_64-unknown-linux-gnu
flags="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
for kind in inline-8bit-counters pc-table trace-compares; do flags="$flags -Cllvm-args=-sanitizer-coverage-$kind"; done
RUSTC_BOOTSTRAP=1 RUSTFLAGS=$flags cargo build --quiet --release --target $target
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
fuzz() {
	name=$1 length=$2 seeds=$3
	shift 3
	mkdir -p "corpus/$name"
	"target/$target/release/$name" -seed=1 -max_total_time="$seconds" -max_len="$length" -rss_limit_mb=600 "$@" \
		"corpus/$name" "$seeds" >"corpus/$name.log" 2>&1
}
seconds=$1
for one in "perf_data 40000" "perfetto 20000" "trace_dat 20000" "wprof 10000"; do
	fuzz $one "seeds/${one% *}" & all="${all-} $!"
done
fuzz perf_script 16000 seeds/perf_script -dict=perf_script.dict & all="$all $!"
fuzz scenario 8000 ../../../scenarios -dict=scenario.dict & all="$all $!"
failed=0
for one in $all; do wait "$one" || failed=1; done
tail -qn 1 corpus/*.log
exit $failed
