/* Measures how long a thread stands still after it has been moved out of a throttled group while its CPU is idle. The group is then
 * removed ("remove") or not ("keep"). For docs/lab/findings.md:
 *
 *     cc -O1 -static -o moved-away bench/moved-away.c
 *     cpumax lab run 6.18 --cpus 2 --append 'nohz_full=1 rcu_nocbs=1 isolcpus=nohz,domain,managed_irq,1' -- ./moved-away remove
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define GROUPS "/sys/fs/cgroup"
/* Longest wait for the thread to go on, ms. */
#define PATIENCE 10000

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	if (file < 0 || write(file, text, strlen(text)) < 0) {
		perror(path);
		exit(1);
	}
	close(file);
}

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set)) {
		perror("sched_setaffinity");
		exit(1);
	}
}

static void sleep_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&time, NULL);
}

static long now_ms(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int main(int count, char **words)
{
	int removes = count > 1 && !strcmp(words[1], "remove");
	volatile unsigned long *beat =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct utsname kernel;
	char pid[16];
	unsigned long seen;
	long since;

	uname(&kernel);
	/* The thread that updates vmstat runs once a second, and the CPU then looks for runnable tasks. This interval delays all but the first. */
	put("/proc/sys/vm/stat_interval", "1000");
	put(GROUPS "/cgroup.subtree_control", "+cpu");
	if (mkdir(GROUPS "/limited", 0755) || mkdir(GROUPS "/free", 0755)) {
		perror(GROUPS);
		return 1;
	}
	put(GROUPS "/limited/cpu.max", "1000 200000");
	pin(0);
	pid_t busy = fork();
	if (!busy) {
		pin(1);
		for (;;)
			++*beat;
	}
	sleep_ms(300);
	snprintf(pid, sizeof pid, "%d", busy);
	put(GROUPS "/limited/cgroup.procs", pid);
	do {
		seen = *beat;
		sleep_ms(30);
	} while (*beat != seen);
	put(GROUPS "/free/cgroup.procs", pid);
	if (removes && rmdir(GROUPS "/limited")) {
		perror("rmdir");
		return 1;
	}
	since = now_ms();
	while (*beat == seen && now_ms() - since < PATIENCE)
		sleep_ms(1);
	printf("%s, %s: it stands still for %ld ms%s\n", kernel.release, removes ? "group removed" : "group kept",
	       now_ms() - since, *beat == seen ? ", to the end" : "");
	kill(busy, SIGKILL);
	return 0;
}
