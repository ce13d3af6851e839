//! What stands below the options in the help of each command.

pub const EXAMPLES: &str = "\
Examples:
  cpumax scenarios                         what is built in, and what each shows
  cpumax run fibtest                       one of them, on every generation
  cpumax run fibtest --kernel 5.4,6.18     on two kernels only
  cpumax run fibtest --set /limited:500m   with another limit, half a CPU
  cpumax replay perf.data --set 500m --set '50000 100000'
                                           what these limits would have done to a recorded service

Exit status: 0 when all went as expected, 1 when a run did not show what its scenario expects, \
2 when the input was wrong, 130 when interrupted.";

pub const RUN_EXAMPLES: &str = "\
Examples:
  cpumax run lock-holder
  cpumax run my-service.toml --kernel 6.12..7.3
  cpumax run fibtest --set '/limited:cpu.max=20000 100000' --set /limited:cpu.max.burst=20000
  cpumax run burst --seeds 1..20 --json results.json
  cpumax run nested --on vm --kernel 6.12,7.3
  cpumax run rt-deadlock --kernel 6.1 --trace trace.json   (open it in the Perfetto UI)";

pub const REPLAY_EXAMPLES: &str = "\
Examples:
  perf sched record -a --all-cgroups -- sleep 10     (record the machine for ten seconds)
  cpumax inspect perf.data                           (what is in it)
  cpumax replay perf.data                            (a ladder of limits around what it used)
  cpumax replay perf.data --group 'comm:nginx*' --set '50000 100000' --set '10000 20000'
  cpumax replay perf.data --set 'cpu.max=20000 100000,cpu.max.burst=20000' --kernel 6.12,7.3
  cpumax replay perf.data --set 500m --set 500m/10ms      (half a CPU, as Kubernetes says it)
  cpumax replay perf.data --set 500m,pod:1                (a container and its pod)
  cpumax replay perf.data --set /system.slice/web.service:50%";

pub const LAB_EXAMPLES: &str = "\
Examples:
  cpumax lab list                       (which kernels there are, and which of them are here)
  cpumax lab fetch                      (get all of them; a few hundred megabytes)
  cpumax lab fetch 6.12 7.3             (get two)
  cpumax lab run 7.3 -- ./mytest        (run a static program of your own on one)";

pub const LAB_RUN_EXAMPLES: &str = "\
Examples:
  cpumax lab run 7.3 -- ./mytest --fast
  cpumax lab run 6.12 --cpus 4 --file busybox:/bin/sh --file test.sh:/test.sh -- sh /test.sh
  cpumax lab run 6.18 --exact -- ./mytest      (one CPU, the same result in every run)

COMMAND is a program of this machine, which is put into /bin there, or one that --file puts there. \
It must be static, or --file must give its loader and libraries too. It finds /proc, /sys, /dev \
and cgroup2 at /sys/fs/cgroup, and may write anywhere: files are in memory and gone afterwards. \
What it writes comes out here; standard input is empty. The machine ends when the program and \
everything that holds its output have ended.

Exit status: that of the command (128 and the number of the signal if one ended it), 2 when it \
could not be run, 124 when it took longer than --timeout, 130 when interrupted.";

pub const COMPARE_EXAMPLES: &str = "\
Examples:
  cpumax compare nested ancestor-leak --kernel 6.12,6.18,7.3
  cpumax compare --all --kernel 7.3 --seeds 1..5 --json cells.json --svg matrix.svg
  cpumax compare ancestor-leak --on model --kernel 6.18,7.2 --against 7.3

In a cell stands how far the worst number of all is off, as a multiple of what it may be. Exit \
status 1 when that is more than 1 anywhere, 2 when nothing could be compared.";

pub const SEARCH_EXAMPLES: &str = "\
Examples:
  cpumax search --kernel 6.18 --cases 500             where the model and the kernel differ
  cpumax search --kernel 6.18 --against 7.2           where two kernels differ
  cpumax search --kernel 7.2 --against 7.3 --on model where their models do
  cpumax search --kernel 7.3 --log 7.3.log            can be stopped and goes on from there

Exit status 1 when something was found.";

pub const WEIGH_EXAMPLES: &str = "\
Examples:
  cpumax weigh                                      every built-in scenario but the largest
  cpumax weigh profile-384 --kernel 6.12,6.18,7.2,7.3,pull --for 2s --seeds 1..1
  cpumax weigh recordings/batch.perf.data --set '50000 100000' --seeds 1..20";
