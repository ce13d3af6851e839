/*
 * The time of an emulated machine with several CPUs: the instructions that its CPUs execute, in turns. See turns.rs.
 *
 * QEMU loads this before its own libraries (LD_PRELOAD), and as a plugin. All CPUs of the machine are on one thread of QEMU
 * (thread=single), which goes round them; as a plugin we are called before every block of instructions, count them, and
 * send a CPU on to the next that has had its turn. In every round of TURN_NS each CPU that does not halt executes what takes
 * so long. Who asks for the time, or waits in ppoll(), is told of ours.
 *
 * Another thread of QEMU, its first, serves timers and the monitor. It works only while the CPUs stand still, and they only
 * while it waits, so that all happens in one order, and at a time that depends on instructions alone: between the two goes a
 * baton.
 */
#define _GNU_SOURCE
/* A checked ppoll() would be a second one of the same name. */
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

/* As in exact mode (shift=1). */
#define INSTRUCTION_NS 2
/* What CPUs do to each other is seen so late: about as late as on iron. */
#define TURN_NS 2000
/* Rounds between two looks at files that others write to: the monitor's. */
#define LOOK_EVERY 512
/* Who does not come for so many turns of others has been stopped, and does not halt by an instruction of its own. */
#define TURNS_UNTIL_GONE 4096
/* Functions of QEMU begin at multiples of that. */
#define FUNCTION_BYTES 16
/* QEMU has no more of this kind. */
#define MOST_CPUS 256

/* ---- The machine's CPUs and their time ---- */

struct cpu {
	/* How far it has come, ns. */
	int64_t has_ns;
	/* It does not halt. */
	bool runs;
};

static struct cpu cpus[MOST_CPUS];
/* The first so many may be there. */
static unsigned int known;
static unsigned int running;
/* Whose turn it is; none yet: MOST_CPUS. */
static unsigned int current = MOST_CPUS;
/* That one, and the one that QEMU executes, as it knows them. */
static void *current_cpu, **executed;
/* What it may execute until then, ns, and how much that was when it was last counted. */
static int64_t left_ns, counted_ns;

/* The round. */
static int64_t begin_ns, end_ns;
/* What all together executed in it, ns. */
static int64_t done_ns;
static unsigned int rounds, turns_in_vain;
/* One that halts may have been woken since QEMU came to it last: another one has done something to it, or had before it
 * halted. */
static bool one_may_wake;
/* What is left of a turn up to the end of the block before which one was not sent on to the others that would have been, had
 * any of them been able to wake; NEVER_NS: it was. */
static int64_t stayed_ns = NEVER_NS;

/* ---- The baton ---- */

enum who { UNKNOWN, TIMERS, CPUS, OTHER };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed[OTHER] = {
	[TIMERS] = PTHREAD_COND_INITIALIZER,
	[CPUS] = PTHREAD_COND_INITIALIZER,
};
static enum who owner = TIMERS;
/* The thread of the CPUs is there; it does not wait for anybody. */
static bool has_cpus, cpus_run;
/* What either waits for. */
static pthread_cond_t *cpus_wait_for, *timers_wait_for;
static atomic_bool timers_are_called;
/* When the next timer is due. */
static int64_t due_ns = NEVER_NS;
/* What else the thread of the timers waits for. */
static struct pollfd *files;
static nfds_t file_count;
/* Wakes it where it waits for files only. */
static int wake_fd = -1;

static atomic_bool is_used;
static __thread enum who me;

/* ---- What we put ourselves in the place of, and what we need of QEMU ---- */

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
/* Up to version 2 of the interface, and from 3 on. */
static const void *(*bytes_of)(const struct qemu_plugin_insn *);
static size_t (*copy_bytes_of)(const struct qemu_plugin_insn *, void *, size_t);

/* QEMU reads which version of the interface we are made for: any that we know. */
int qemu_plugin_version = 1;

static enum who who_am_i(void)
{
	if (me == UNKNOWN)
		me = getpid() == (pid_t)syscall(SYS_gettid) ? TIMERS : OTHER;
	return me;
}

/* Where the round has come to: in a turn only its share of those that run goes by, as all of them execute at once. It
 * never goes back. */
static int64_t now_ns(void)
{
	static int64_t last_ns;
	int64_t all_ns = done_ns + counted_ns - left_ns;
	int64_t now = begin_ns + (running > 1 ? all_ns / running : all_ns);

	if (now > end_ns)
		now = end_ns;
	if (now < last_ns)
		return last_ns;
	/* Others see numbers that are about to change. */
	if (who_am_i() == owner)
		last_ns = now;
	return now;
}

/* Begins a round, which is over early where a timer is due. */
static void begin_round(int64_t at_ns)
{
	begin_ns = at_ns;
	end_ns = at_ns + TURN_NS;
	if (due_ns > begin_ns && due_ns < end_ns)
		end_ns = due_ns;
	done_ns = 0;
	turns_in_vain = 0;
}

/* With the lock. */
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

/* Lets timers be served, and the monitor. */
static void serve(void)
{
	pthread_mutex_lock(&lock);
	give_to(TIMERS);
	while (owner != CPUS)
		real_wait(&changed[CPUS], &lock);
	pthread_mutex_unlock(&lock);
}

/* ---- Turns ---- */

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

/* Whom QEMU executes. What it tells of that may be, from version 10 on, who came to the block first. */
static unsigned int who_executes(unsigned int told)
{
	static void *all[MOST_CPUS];

	if (told < MOST_CPUS && all[told] == *executed)
		return told;
	for (unsigned int number = 0; number < MOST_CPUS; number++) {
		/* For this QEMU goes through all of them, so it is asked once for each. */
		if (!all[number])
			all[number] = get_cpu(number);
		if (all[number] == *executed)
			return number;
	}
	fprintf(stderr, "this QEMU executes a CPU that it does not have, or has more than %d\n", MOST_CPUS);
	abort();
}

/* A turn begins, is over, or is looked at for another reason. */
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

/* Whether there is nobody to go on to: no other CPU runs, and none can have begun to. (Where a timer wakes one QEMU itself has
 * all of them leave.) To go round 64 halted CPUs takes the host much longer than the instructions of a turn. */
static bool is_alone(void)
{
	return running == 1 && !one_may_wake && rounds % LOOK_EVERY;
}

/* How long it may go on. Who has had its turn leaves at the end of this block, unless it is alone: that an interrupt has woken
 * one that halts shows only when QEMU comes to it. */
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

/* Before a block of that many instructions. */
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

/* Before a block that ends by waiting for another CPU, as spinlocks do: QEMU goes on to the next one by itself. What this one
 * would do in the rest of its turn it did. */
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

/* Before a block that ends by a halt. */
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

/* ---- In the place of the C library ---- */

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

/* Where the first thread waits for its next timer, and for files. (It must not hold QEMU's lock, as it does where it waits
 * for a disk: such a machine has none.) */
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
		/* Nobody executes anything until then. */
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

/* What a QEMU calls in its place that is built with checks. */
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t bytes)
{
	if (bytes / sizeof(*fds) < count)
		abort();
	return ppoll(fds, count, timeout, mask);
}

/* By such a number one thread of QEMU calls another, as where a CPU sets a timer: at once. */
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

/* In the place of QEMU's qemu_cpu_is_self(), which is asked by whoever interrupts a CPU: all are on one thread. */
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

/* What the thread of the CPUs does. */
static void *(*execute)(void *);

static void *begin_cpus(void *argument)
{
	me = CPUS;
	/* It is a variable of each thread. */
	executed = dlsym(RTLD_DEFAULT, "current_cpu");
	return execute(argument);
}

/* The first that is made when there is a CPU is the one that executes them all. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *), void *argument)
{
	if (is_used && who_am_i() == TIMERS && !execute && get_cpu(0)) {
		execute = entry;
		entry = begin_cpus;
	}
	return real_create(thread, attributes, entry, argument);
}

/* Whoever waits for that may go on, when it has the baton. */
static void tell(pthread_cond_t *condition)
{
	uint64_t once = 1;

	if (!is_used)
		return;
	pthread_mutex_lock(&lock);
	if (condition == cpus_wait_for && !cpus_run) {
		cpus_run = true;
		real_signal(&changed[TIMERS]);
		/* That it cannot be told twice does not matter. */
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

/* Where the CPUs' thread waits when all of them halt or are stopped, and the first one for them to stop. */
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

/* ---- To begin ---- */

static void *find(const char *name, bool *missing)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!found) {
		fprintf(stderr, "this QEMU does not let libraries use its %s\n", name);
		*missing = true;
	}
	return found;
}

/* Has a function of QEMU go on to another one, by two instructions that take twelve of the at least sixteen bytes from the
 * beginning of one to that of the next. */
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
	/* The time-stamp counter is a clock like all the others; QEMU would read the host's. */
	return !missing && lead(counter, clock) && lead(asked, (const void *)is_self);
}

/* QEMU calls this before it makes the machine. */
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
	/* Nothing of it is left to what QEMU may start. */
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
