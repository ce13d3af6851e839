/*
 * The time of an emulated machine with several CPUs: the number of instructions that its CPUs
 * execute, in turns. See turns.rs.
 *
 * QEMU loads this library before its own (LD_PRELOAD), and as a plugin. One thread of QEMU executes
 * all CPUs (thread=single), one after the other. The plugin is called before every block of
 * instructions. It counts them, and makes a CPU leave when its turn is over. In each round of
 * TURN_NS, every CPU that does not halt executes instructions for that time. Calls that read the
 * clock, or wait in ppoll(), see this time.
 *
 * QEMU's main thread serves timers and the monitor. It runs only while the CPUs stand still, and
 * they only while it waits. So all events have one order, at times that depend on instructions
 * alone. The variable `owner` says which thread runs.
 */
#define _GNU_SOURCE
/* With checks, ppoll() would be defined twice. */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define NEVER_NS INT64_MAX

/* As in exact mode (-icount shift=1). */
#define INSTRUCTION_NS 2
/* Delay until a CPU sees what another one does, about as on real hardware. */
#define TURN_NS 2000
/* Rounds between two looks at files that other processes write to, such as the monitor's. */
#define LOOK_EVERY 512
/* A CPU that lets so many turns of others pass has been stopped from outside. */
#define TURNS_UNTIL_GONE 4096
/* Alignment of QEMU's functions. */
#define FUNCTION_BYTES 16
/* Most CPUs of such a machine in QEMU. */
#define MOST_CPUS 256

/* ---- The machine's CPUs and their time ---- */

struct cpu {
	/* Time up to which it has executed, ns. */
	int64_t has_ns;
	/* It is not halted. */
	bool runs;
};

static struct cpu cpus[MOST_CPUS];
/* CPUs seen so far: those below this number. */
static unsigned int known;
static unsigned int running;
/* Number of the CPU whose turn it is; MOST_CPUS: none yet. */
static unsigned int current = MOST_CPUS;
/* QEMU's pointer to that CPU, and QEMU's variable with the CPU that it executes. */
static void *current_cpu, **executed;
/* Time left in the turn, ns, and its value at the last count. */
static int64_t left_ns, counted_ns;

/* Begin and end of the round. */
static int64_t begin_ns, end_ns;
/* Time that all CPUs together have executed in the round, ns. */
static int64_t done_ns;
static unsigned int rounds, turns_in_vain;
/* A halted CPU may have been woken since QEMU last tried it: another CPU has interrupted it. */
static bool one_may_wake;
/* For a CPU that stays though its turn is over, because no other can run: left_ns at the end of the
 * block before which that was decided. NEVER_NS: it left. */
static int64_t stayed_ns = NEVER_NS;

/* ---- Which thread runs ---- */

enum who { UNKNOWN, TIMERS, CPUS, OTHER };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed[OTHER] = {
	[TIMERS] = PTHREAD_COND_INITIALIZER,
	[CPUS] = PTHREAD_COND_INITIALIZER,
};
static enum who owner = TIMERS;
/* The CPU thread exists; it is not waiting for a condition. */
static bool has_cpus, cpus_run;
/* Conditions that the two threads wait for. */
static pthread_cond_t *cpus_wait_for, *timers_wait_for;
static atomic_bool timers_are_called;
/* Time of the next timer, ns. */
static int64_t due_ns = NEVER_NS;
/* Files that the main thread waits for. */
static struct pollfd *files;
static nfds_t file_count;
/* Wakes the main thread where it waits for files only. */
static int wake_fd = -1;

static atomic_bool is_used;
static __thread enum who me;

/* ---- Replaced functions of the C library, and functions of QEMU ---- */

static int (*real_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static int (*real_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*real_signal)(pthread_cond_t *);
static int (*real_broadcast)(pthread_cond_t *);
static ssize_t (*real_write)(int, const void *, size_t);

struct qemu_plugin_tb;
struct qemu_plugin_insn;

static void *(*get_cpu)(int);
static void (*leave_cpu)(void *);
static void (*call_when_translated)(uint64_t, void (*)(uint64_t, struct qemu_plugin_tb *));
static void (*call_when_executed)(struct qemu_plugin_tb *, void (*)(unsigned int, void *), int, void *);
static size_t (*instructions_of)(const struct qemu_plugin_tb *);
static struct qemu_plugin_insn *(*instruction)(const struct qemu_plugin_tb *, size_t);
static size_t (*size_of)(const struct qemu_plugin_insn *);
/* For versions up to 2 of the plugin interface, and from 3 on. */
static const void *(*bytes_of)(const struct qemu_plugin_insn *);
static size_t (*copy_bytes_of)(const struct qemu_plugin_insn *, void *, size_t);

/* QEMU reads from this variable the interface version that the plugin is made for. */
int qemu_plugin_version = 1;

static enum who who_am_i(void)
{
	if (me == UNKNOWN)
		me = getpid() == (pid_t)syscall(SYS_gettid) ? TIMERS : OTHER;
	return me;
}

/* The time in the round. If several CPUs run, an instruction advances it by that CPU's share, as
 * all execute at once. It never goes back. */
static int64_t now_ns(void)
{
	static int64_t last_ns;
	int64_t all_ns = done_ns + counted_ns - left_ns;
	int64_t now = begin_ns + (running > 1 ? all_ns / running : all_ns);

	if (now > end_ns)
		now = end_ns;
	if (now < last_ns)
		return last_ns;
	/* Only the owner sees stable numbers. */
	if (who_am_i() == owner)
		last_ns = now;
	return now;
}

/* Begins a round; it ends early where a timer is due. */
static void begin_round(int64_t at_ns)
{
	begin_ns = at_ns;
	end_ns = at_ns + TURN_NS;
	if (due_ns > begin_ns && due_ns < end_ns)
		end_ns = due_ns;
	done_ns = 0;
	turns_in_vain = 0;
}

/* Lets a thread run. The caller holds the lock. */
static void give_to(enum who other)
{
	owner = other;
	real_signal(&changed[other]);
}

static int poll_really(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	return syscall(SYS_ppoll, fds, count, timeout, mask, _NSIG / 8);
}

static int poll_at_once(struct pollfd *fds, nfds_t count)
{
	static const struct timespec none;

	return poll_really(fds, count, &none, NULL);
}

/* Lets the main thread serve timers and the monitor, and waits for it. */
static void serve(void)
{
	pthread_mutex_lock(&lock);
	give_to(TIMERS);
	while (owner != CPUS)
		real_wait(&changed[CPUS], &lock);
	pthread_mutex_unlock(&lock);
}

/* ---- Turns ---- */

/* Adds the time since the last count to the current CPU and to the round. */
static void count(void)
{
	int64_t executed_ns = counted_ns - left_ns;

	if (current < MOST_CPUS)
		cpus[current].has_ns += executed_ns;
	done_ns += executed_ns;
	counted_ns = left_ns;
}

static void runs_no_more(struct cpu *cpu)
{
	cpu->runs = false;
	running--;
}

static bool all_had_their_turn(void)
{
	for (unsigned int i = 0; i < known; i++)
		if (cpus[i].runs && cpus[i].has_ns < end_ns)
			return false;
	return true;
}

static void next_round(void)
{
	bool looks = ++rounds % LOOK_EVERY == 0;

	begin_round(end_ns);
	if (begin_ns >= due_ns || (looks && files && poll_at_once(files, file_count) > 0))
		serve();
}

/* Number of the CPU that QEMU executes. From QEMU 10 on, `told` may be the block's first CPU. */
static unsigned int who_executes(unsigned int told)
{
	static void *all[MOST_CPUS];

	if (told < MOST_CPUS && all[told] == *executed)
		return told;
	for (unsigned int number = 0; number < MOST_CPUS; number++) {
			/* QEMU searches a list for each call, so ask once for each CPU. */
		if (!all[number])
			all[number] = get_cpu(number);
		if (all[number] == *executed)
			return number;
	}
	fprintf(stderr, "this QEMU executes a CPU that it does not have, or has more than %d\n", MOST_CPUS);
	abort();
}

/* Accounts for the CPU that is about to execute a block. Returns its number. */
static __attribute__((noinline)) unsigned int look_at_turn(unsigned int told)
{
	unsigned int number = who_executes(told);
	struct cpu *cpu = &cpus[number];

	count();
	current = number;
	current_cpu = *executed;
	if (number >= known)
		known = number + 1;
	if (!cpu->runs) {
		int64_t now = now_ns();

		cpu->runs = true;
		running++;
		if (cpu->has_ns < now)
			cpu->has_ns = now;
	}
	if (timers_are_called)
		serve();
	return number;
}

/* Whether no other CPU can run: none runs, and none can have been woken. (If a timer wakes one,
 * QEMU makes all leave.) Trying 64 halted CPUs takes much longer than executing a turn. */
static bool is_alone(void)
{
	return running == 1 && !one_may_wake && rounds % LOOK_EVERY;
}

/* Sets how long a CPU may go on. If its turn is over it leaves at the end of this block, unless no
 * other CPU can run: whether an interrupt has woken a halted CPU shows only when QEMU tries it. */
static void allow(unsigned int number)
{
	struct cpu *cpu = &cpus[number];
	bool leaves = cpu->runs && cpu->has_ns >= end_ns && known > 1;
	bool stays = leaves && is_alone();

	if (all_had_their_turn()) {
		if (running)
			next_round();
	} else if (leaves && ++turns_in_vain > TURNS_UNTIL_GONE) {
		for (unsigned int i = 0; i < known; i++)
			if (cpus[i].runs && cpus[i].has_ns < end_ns)
				runs_no_more(&cpus[i]);
	}
	left_ns = cpu->runs && cpu->has_ns < end_ns ? end_ns - cpu->has_ns : 0;
	counted_ns = left_ns;
	stayed_ns = stays ? left_ns : NEVER_NS;
	if (leaves && !stays) {
		one_may_wake = false;
		leave_cpu(current_cpu);
	}
}

/* Called before a block of so many instructions. */
static void on_block(unsigned int told, void *instructions)
{
	int64_t ns = (int64_t)(uintptr_t)instructions * INSTRUCTION_NS;

	if (__builtin_expect(*executed != current_cpu || left_ns <= 0, 0)) {
		allow(look_at_turn(told));
		if (stayed_ns != NEVER_NS)
			stayed_ns -= ns;
	}
	left_ns -= ns;
}

/* Called before a block that ends in PAUSE, as in spinlocks: QEMU goes on to the next CPU. The rest
 * of this CPU's turn counts as executed. */
static void on_pause(unsigned int told, void *instructions)
{
	unsigned int number = look_at_turn(told);
	struct cpu *cpu = &cpus[number];

	if (cpu->has_ns < end_ns) {
		done_ns += end_ns - cpu->has_ns;
		cpu->has_ns = end_ns;
	}
	allow(number);
}

/* Called before a block that ends in HLT. */
static void on_halt(unsigned int told, void *instructions)
{
	int64_t ns = (int64_t)(uintptr_t)instructions * INSTRUCTION_NS;
	unsigned int number = look_at_turn(told);

	cpus[number].has_ns += ns;
	done_ns += ns;
	runs_no_more(&cpus[number]);
	one_may_wake = true;
	allow(number);
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *block)
{
	static const uint8_t halt = 0xf4, pause[] = { 0xf3, 0x90 };
	void (*called)(unsigned int, void *) = on_block;
	size_t instructions = instructions_of(block);

	for (size_t i = 0; i < instructions; i++) {
		struct qemu_plugin_insn *one = instruction(block, i);
		size_t size = size_of(one);
		uint8_t bytes[sizeof(pause)];

		if (size > sizeof(bytes) || (copy_bytes_of && copy_bytes_of(one, bytes, size) < size))
			continue;
		if (bytes_of)
			memcpy(bytes, bytes_of(one), size);
		if (size == sizeof(halt) && bytes[0] == halt)
			called = on_halt;
		if (size == sizeof(pause) && !memcmp(bytes, pause, size))
			called = on_pause;
	}
	call_when_executed(block, called, 0, (void *)(uintptr_t)instructions);
}

/* ---- Replaced functions of the C library ---- */

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int64_t ns;

	if (clock != CLOCK_MONOTONIC || !is_used)
		return syscall(SYS_clock_gettime, clock, now);
	ns = now_ns();
	now->tv_sec = ns / NS_PER_S;
	now->tv_nsec = ns % NS_PER_S;
	return 0;
}

/* The main thread waits here for its next timer, and for files. (It does not hold QEMU's lock, as
 * it would for a disk, which such a machine lacks.) */
int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	struct pollfd all[count + 1];
	int64_t until_ns = NEVER_NS;
	uint64_t calls;
	int ready;

	if (!is_used || who_am_i() != TIMERS)
		return poll_really(fds, count, timeout, mask);
	if (timeout && timeout->tv_sec >= 0 && timeout->tv_sec < INT32_MAX)
		until_ns = now_ns() + timeout->tv_sec * NS_PER_S + timeout->tv_nsec;
	for (;;) {
		timers_are_called = false;
		ready = poll_at_once(fds, count);
		if (ready || now_ns() >= until_ns)
			return ready;
		pthread_mutex_lock(&lock);
		due_ns = until_ns;
		if (cpus_run) {
			if (end_ns > due_ns)
				end_ns = due_ns;
			files = fds;
			file_count = count;
			give_to(CPUS);
			while (owner != TIMERS)
				real_wait(&changed[TIMERS], &lock);
			files = NULL;
			pthread_mutex_unlock(&lock);
			continue;
		}
		/* No CPU executes anything until then. */
		if (until_ns != NEVER_NS)
			begin_round(until_ns);
		pthread_mutex_unlock(&lock);
		if (until_ns != NEVER_NS)
			continue;
		memcpy(all, fds, count * sizeof(*fds));
		all[count] = (struct pollfd){ .fd = wake_fd, .events = POLLIN };
		ready = poll_really(all, count + 1, NULL, mask);
		if (ready < 0 || (all[count].revents && read(wake_fd, &calls, sizeof(calls)) < 0))
			return -1;
	}
}

/* The same for a QEMU that is built with checks (_FORTIFY_SOURCE). */
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t bytes)
{
	if (bytes / sizeof(*fds) < count)
		abort();
	return ppoll(fds, count, timeout, mask);
}

/* QEMU's threads notify each other by writes of eight bytes, e.g. when a CPU sets a timer. Such a
 * write ends the turn. */
ssize_t write(int fd, const void *bytes, size_t size)
{
	ssize_t written = real_write ? real_write(fd, bytes, size) : syscall(SYS_write, fd, bytes, size);

	if (size == sizeof(uint64_t) && is_used && who_am_i() == CPUS) {
		timers_are_called = true;
		counted_ns -= left_ns;
		left_ns = 0;
	}
	return written;
}

/* Replaces QEMU's qemu_cpu_is_self(), which is called before a CPU is interrupted: all CPUs are on
 * one thread. */
static bool is_self(void *cpu)
{
	if (who_am_i() != CPUS)
		return false;
	if (cpu != *executed) {
		one_may_wake = true;
		if (left_ns == stayed_ns) {
			one_may_wake = false;
			leave_cpu(current_cpu);
		}
	}
	return true;
}

/* Entry of the CPU thread. */
static void *(*execute)(void *);

static void *begin_cpus(void *argument)
{
	me = CPUS;
	/* A thread-local variable. */
	executed = dlsym(RTLD_DEFAULT, "current_cpu");
	return execute(argument);
}

/* The first thread created after the first CPU is the CPU thread. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *), void *argument)
{
	if (is_used && who_am_i() == TIMERS && !execute && get_cpu(0)) {
		execute = entry;
		entry = begin_cpus;
	}
	return real_create(thread, attributes, entry, argument);
}

/* Lets threads that wait for a condition go on, once they are the owner. */
static void tell(pthread_cond_t *condition)
{
	uint64_t once = 1;

	if (!is_used)
		return;
	pthread_mutex_lock(&lock);
	if (condition == cpus_wait_for && !cpus_run) {
		cpus_run = true;
		real_signal(&changed[TIMERS]);
		/* A second write may fail, which does not matter. */
		if (who_am_i() != TIMERS)
			(void)syscall(SYS_write, wake_fd, &once, sizeof(once));
	}
	if (condition == timers_wait_for) {
		timers_wait_for = NULL;
		timers_are_called = true;
		real_signal(&changed[TIMERS]);
	}
	pthread_mutex_unlock(&lock);
}

int pthread_cond_signal(pthread_cond_t *condition)
{
	int failed = real_signal(condition);

	tell(condition);
	return failed;
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
	int failed = real_broadcast(condition);

	tell(condition);
	return failed;
}

/* The CPU thread waits here when all CPUs halt or are stopped, the main thread for them to stop. */
int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
	enum who caller = is_used ? who_am_i() : OTHER;

	if (caller == CPUS) {
		pthread_mutex_lock(&lock);
		has_cpus = true;
		cpus_run = false;
		cpus_wait_for = condition;
		pthread_mutex_unlock(mutex);
		give_to(TIMERS);
		while (owner != CPUS)
			real_wait(&changed[CPUS], &lock);
		cpus_wait_for = NULL;
	} else if (caller == TIMERS && has_cpus) {
		pthread_mutex_lock(&lock);
		timers_wait_for = condition;
		pthread_mutex_unlock(mutex);
		due_ns = NEVER_NS;
		while (owner != TIMERS || timers_wait_for) {
			if (owner == TIMERS && cpus_run)
				give_to(CPUS);
			real_wait(&changed[TIMERS], &lock);
		}
	} else {
		return real_wait(condition, mutex);
	}
	pthread_mutex_unlock(&lock);
	pthread_mutex_lock(mutex);
	return 0;
}

/* ---- Start ---- */

static void *find(const char *name, bool *missing)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found) {
		fprintf(stderr, "this QEMU does not let libraries use its %s\n", name);
		*missing = true;
	}
	return found;
}

/* Redirects a function of QEMU by two instructions, 12 of the at least 16 bytes to the next one. */
static bool lead(uint8_t *from, const void *to)
{
	/* movabs $to, %rax; jmp *%rax */
	static const uint8_t load[] = { 0x48, 0xb8 }, jump[] = { 0xff, 0xe0 };
	uintptr_t page_bytes = sysconf(_SC_PAGESIZE), first = (uintptr_t)from & -page_bytes;

	if ((uintptr_t)from % FUNCTION_BYTES) {
		fprintf(stderr, "functions of this QEMU stand too near to each other to be changed\n");
		return false;
	}
	if (mprotect((void *)first, 2 * page_bytes, PROT_READ | PROT_WRITE | PROT_EXEC) < 0) {
		perror("the code of QEMU cannot be changed");
		return false;
	}
	memcpy(from, load, sizeof(load));
	memcpy(from + sizeof(load), &to, sizeof(to));
	memcpy(from + sizeof(load) + sizeof(to), jump, sizeof(jump));
	mprotect((void *)first, 2 * page_bytes, PROT_READ | PROT_EXEC);
	return true;
}

static bool find_all(void)
{
	bool missing = false;
	void *counter = find("cpu_get_ticks", &missing), *clock = find("cpu_get_clock", &missing);
	void *bytes = find("qemu_plugin_insn_data", &missing), *asked = find("qemu_cpu_is_self", &missing);

	*(void **)&get_cpu = find("qemu_get_cpu", &missing);
	*(void **)&leave_cpu = find("cpu_exit", &missing);
	*(void **)&call_when_translated = find("qemu_plugin_register_vcpu_tb_trans_cb", &missing);
	*(void **)&call_when_executed = find("qemu_plugin_register_vcpu_tb_exec_cb", &missing);
	*(void **)&instructions_of = find("qemu_plugin_tb_n_insns", &missing);
	*(void **)&instruction = find("qemu_plugin_tb_get_insn", &missing);
	*(void **)&size_of = find("qemu_plugin_insn_size", &missing);
	*(qemu_plugin_version < 3 ? (void **)&bytes_of : (void **)&copy_bytes_of) = bytes;
	find("current_cpu", &missing);
	/* The time-stamp counter must show the same time; QEMU would read the host's. */
	return !missing && lead(counter, clock) && lead(asked, (const void *)is_self);
}

/* QEMU calls this before it creates the machine. */
int qemu_plugin_install(uint64_t id, const void *about, int count, char **arguments)
{
	const char *preloaded = getenv("LD_PRELOAD"), *others = preloaded ? strchr(preloaded, ':') : NULL;
	struct timespec now;

	if (dlsym(RTLD_DEFAULT, "ppoll") != (void *)ppoll) {
		fprintf(stderr, "this QEMU does not take the library (LD_PRELOAD) that gives it its clock\n");
		return -1;
	}
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake_fd < 0) {
		perror("eventfd");
		return -1;
	}
	if (!find_all())
		return -1;
	/* Programs that QEMU starts do not load the library. */
	if (!others || setenv("LD_PRELOAD", others + 1, 1) < 0)
		unsetenv("LD_PRELOAD");
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	begin_round(now.tv_sec * NS_PER_S + now.tv_nsec);
	is_used = true;
	call_when_translated(id, on_translation);
	return 0;
}

__attribute__((constructor)) static void prepare(void)
{
	*(void **)&real_wait = dlvsym(RTLD_NEXT, "pthread_cond_wait", "GLIBC_2.3.2");
	*(void **)&real_signal = dlvsym(RTLD_NEXT, "pthread_cond_signal", "GLIBC_2.3.2");
	*(void **)&real_broadcast = dlvsym(RTLD_NEXT, "pthread_cond_broadcast", "GLIBC_2.3.2");
	*(void **)&real_write = dlsym(RTLD_NEXT, "write");
	*(void **)&real_create = dlsym(RTLD_NEXT, "pthread_create");
	if (dlsym(RTLD_DEFAULT, "qemu_plugin_register_vcpu_tb_exec_cond_cb"))
		qemu_plugin_version = 3;
	else if (dlsym(RTLD_DEFAULT, "qemu_plugin_scoreboard_new"))
		qemu_plugin_version = 2;
}
