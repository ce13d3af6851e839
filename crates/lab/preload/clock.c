/*
 * The clock of an emulated machine: loaded into QEMU before its libraries (LD_PRELOAD), it makes the clock that QEMU
 * asks for go as the host's until a moment that can be set, and a number of times slower from then on. For the machine
 * everything it does is that many times faster: instructions, interrupts between CPUs, and turns at the host's CPUs
 * when it has more than the host. See dilation.rs.
 *
 * QEMU takes time from three places. It asks for CLOCK_MONOTONIC; it waits in ppoll(); and where the machine reads its
 * time-stamp counter it reads the host's, by an instruction. We have that instruction trap, and count nanoseconds in
 * its place, so that the machine has a counter of 1 GHz that agrees with all its other clocks.
 */
#define _GNU_SOURCE
/* A checked ppoll() would be a second one of the same name. */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <x86intrin.h>

#define NS_PER_S 1000000000LL

/* What "FD:TIMES" of the environment says: a shared page, and how many times slower than the host's the clock is to
 * be. */
#define VARIABLE "CPUMAX_CLOCK"

struct page {
	/* A moment of the host's clock, ns: from then on the clock is slower. Whoever sets it does so before it comes. */
	int64_t slower_from_ns;
	/* 1 when the clock is in use: so that its absence, for whatever reason, is noticed. */
	int64_t is_used;
};

static struct page *page;
static int64_t times = 1;
/* The kernel's own code in this process, which reads the counter to tell the real time. */
static uintptr_t vdso;

/* What the kernel maps there is two pages. */
#define VDSO_BYTES 0x2000

/* By system call: the usual way reads the counter. */
static int64_t host_ns(void)
{
	struct timespec now;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static int64_t from_ns(void)
{
	/* Other libraries may ask for the time before we begin. */
	return page ? __atomic_load_n(&page->slower_from_ns, __ATOMIC_RELAXED) : INT64_MAX;
}

/* Our time at a moment of the host. */
static int64_t ours(int64_t host, int64_t from)
{
	return host <= from ? host : from + (host - from) / times;
}

/* The moment of the host at which it is this late. */
static int64_t hosts(int64_t our, int64_t from)
{
	return our <= from ? our : from + (our - from) * times;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	if (clock == CLOCK_MONOTONIC) {
		int64_t ns = ours(host_ns(), from_ns());

		now->tv_sec = ns / NS_PER_S;
		now->tv_nsec = ns % NS_PER_S;
		return 0;
	}
	return syscall(SYS_clock_gettime, clock, now);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	return syscall(SYS_gettimeofday, now, zone);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	struct timespec wait;

	if (timeout && timeout->tv_sec >= 0 && timeout->tv_sec < INT64_MAX / NS_PER_S / times / 2) {
		int64_t from = from_ns(), now = host_ns();
		int64_t end = ours(now, from) + timeout->tv_sec * NS_PER_S + timeout->tv_nsec;
		int64_t left = hosts(end, from) - now;

		/* What a division left over may make it a little negative. */
		left = left > 0 ? left : 0;
		wait.tv_sec = left / NS_PER_S;
		wait.tv_nsec = left % NS_PER_S;
		timeout = &wait;
	}
	return syscall(SYS_ppoll, fds, count, timeout, mask, _NSIG / 8);
}

/* What a QEMU calls in its place that is built with checks. */
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t bytes);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t bytes)
{
	if (bytes / sizeof(*fds) < count)
		abort();
	return ppoll(fds, count, timeout, mask);
}

/* The real counter, for the kernel's own code; with the number of the CPU, if that is asked for. */
static uint64_t real_counter(unsigned int *cpu)
{
	uint64_t counter;

	prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
	counter = cpu ? __rdtscp(cpu) : __rdtsc();
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
	return counter;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
	static const uint8_t rdtsc[] = { 0x0f, 0x31 }, rdtscp[] = { 0x0f, 0x01, 0xf9 };
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uint8_t *code = (const uint8_t *)registers[REG_RIP];
	/* Only a fault that has no address may be one of these, and its code can be read. */
	int is_trap = info->si_code == SI_KERNEL;
	int reads = is_trap && code[0] == rdtsc[0] && code[1] == rdtsc[1];
	int reads_both = is_trap && code[0] == rdtscp[0] && code[1] == rdtscp[1] && code[2] == rdtscp[2];
	unsigned int cpu = 0;
	uint64_t counter;

	if (!reads && !reads_both) {
		/* It comes again, and ends QEMU as it would have without us. */
		signal(number, SIG_DFL);
		return;
	}
	if ((uintptr_t)code - vdso < VDSO_BYTES)
		counter = real_counter(reads_both ? &cpu : NULL);
	else
		counter = ours(host_ns(), from_ns());
	registers[REG_RAX] = (uint32_t)counter;
	registers[REG_RDX] = counter >> 32;
	if (reads_both)
		registers[REG_RCX] = cpu;
	registers[REG_RIP] += reads ? sizeof(rdtsc) : sizeof(rdtscp);
}

static _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "the clock of the machine cannot be made: ");
	perror(what);
	exit(1);
}

/* Takes the clock into use, and leaves nothing of it to what QEMU may start. */
static void begin(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART };
	const char *preloaded = getenv("LD_PRELOAD"), *others = preloaded ? strchr(preloaded, ':') : NULL;

	vdso = getauxval(AT_SYSINFO_EHDR);
	if (sigaction(SIGSEGV, &action, NULL) < 0)
		give_up("sigaction");
	/* All threads to come are made like this one. */
	if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) < 0)
		give_up("prctl(PR_SET_TSC)");
	if (others)
		setenv("LD_PRELOAD", others + 1, 1);
	else
		unsetenv("LD_PRELOAD");
	unsetenv(VARIABLE);
	__atomic_store_n(&page->is_used, 1, __ATOMIC_RELEASE);
}

/* QEMU makes threads; a program that only starts it, as a wrapper does, makes none, and must not have a counter that
 * traps, as QEMU would have that from its first instruction on. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *), void *argument)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (page && !__atomic_load_n(&page->is_used, __ATOMIC_ACQUIRE))
		begin();
	*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	return real ? real(thread, attributes, entry, argument) : EAGAIN;
}

__attribute__((constructor)) static void prepare(void)
{
	const char *text = getenv(VARIABLE);
	char *rest = NULL;
	int fd = text ? (int)strtol(text, &rest, 10) : -1;

	if (rest && *rest == ':')
		times = strtol(rest + 1, &rest, 10);
	if (!rest || *rest || times < 1) {
		errno = EINVAL;
		give_up(VARIABLE);
	}
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		give_up("mmap");
}
