/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For tests only: holds the windows of races open, so that both sides always meet in them
 * (tests/vm/checks/races.rs).
 *
 * The bandwidth library has two points for this, which are empty in a scheduler that does not
 * define them. With `stretched` at 0, the default, the verifier removes all of it.
 */
const volatile u32 stretched = 0;
enum race {
	/* The refill comes between a task's last look at the pool and its entry into the queue. */
	RACE_PARK_AND_REFILL = 1 << 0,
	/* A released task parks again before the release is recorded. */
	RACE_RELEASE_AND_PARK = 1 << 1,
	/* Each wakeup asks for a kick, so that the last wakeup of a CPU that goes offline does. */
	RACE_KICK_AND_LEAVE = 1 << 2,
};
#define STRETCH_MAX_NS 50000000ULL

static int stretched_refill(u64 address);

#define CBW_POINT_BEFORE_QUEUE(g)                            \
	({                                                   \
		if (stretched & RACE_PARK_AND_REFILL)        \
			stretched_refill((u64)(g));          \
	})
#define CBW_POINT_AFTER_RELEASE(t)                           \
	({                                                   \
		if (stretched & RACE_RELEASE_AND_PARK)       \
			stretched_await(&(t)->parks);        \
	})
/* While the window after a release is open, the timer stays on its CPU: the task is on another. */
#define CBW_TIMER_FLAGS (BPF_F_TIMER_ABS | ((stretched & RACE_RELEASE_AND_PARK) ? BPF_F_TIMER_CPU_PIN : 0))

/* Waits until a number has changed, at most STRETCH_MAX_NS. */
static __always_inline void stretched_await(u64 *number)
{
	u64 before = *(volatile u64 *)number, until = bpf_ktime_get_ns() + STRETCH_MAX_NS;
	int i;

	bpf_for(i, 0, 1 << 22) {
		if (*(volatile u64 *)number != before || bpf_ktime_get_ns() >= until)
			break;
	}
}

#include "bandwidth.bpf.h"

/* Refills now. The queue is empty, and here no task could be moved out of it. */
static __noinline int stretched_refill(u64 address)
{
	cbw_group_t *g = cbw_group_at(address);
	u64 id = g->id, now = bpf_ktime_get_ns();
	struct cbw_group_entry *entry;

	CBW_USES_ARENA();
	entry = bpf_map_lookup_elem(&cbw_groups, &id);
	if (!entry)
		return 0;
	cbw_write(g->refill_at_ns, now);
	cbw_round(g, &entry->timer, now, false);
	return 0;
}
