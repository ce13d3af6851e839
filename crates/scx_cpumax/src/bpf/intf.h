/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Records that the scheduler and its loader share: one for each group in the arena, one for each
 * task in task storage. The loader's copy is src/shared.rs; both sides compare sizes at load time.
 */
#ifndef CPUMAX_INTF_H
#define CPUMAX_INTF_H

#define CBW_UNLIMITED (~0ULL)
#define CBW_DEPTH_MAX 32 /* levels below the root */
#define LLC_MAX 64

/* A group on one CPU, written under that CPU's run queue lock. One cache line. */
struct cbw_cpu {
	s64 rem_ns;	/* runtime left of the slice taken from the pool */
	u64 limit_seq;	/* of the limit that the slice was taken under */
	u64 parked_seq; /* release after which this CPU was last counted as throttled */
	u64 usage_ns;	/* CPU time charged here */
	/* Runtime that this CPU's timer took from the pool without that lock; the next charge adds it
	 * to rem_ns. */
	s64 mail_ns;
	/* Scratch of this CPU's walk through parked tasks. In a register the verifier would examine
	 * every count. */
	s64 walked;
	u64 pad[2];
};

struct cbw_group {
	u64 id;	    /* cgroup id */
	u64 parent; /* arena address, 0 for the root */
	u64 park_dsq;
	u32 level;
	u32 pages;
	/* The highest group from here up whose directory a user owned when this one was made, 0 for
	 * none. */
	u64 delegated;
	u64 nr_delegated; /* existing groups whose `delegated` is this one */

	/* The limit. */
	u64 quota_ns; /* CBW_UNLIMITED for none */
	u64 period_ns;
	u64 burst_ns;
	u64 limit_seq; /* changes with each write of the limit */

	/* The pool: runtime left, at least 0. The debt: runtime used beyond it, paid by refills. */
	s64 pool_ns;
	s64 debt_ns;
	s64 share_ns; /* runtime that a CPU takes at a time */
	s64 turn_ns;  /* longest turn of a released task, so that more tasks have one in a period */
	s64 feed_ns;  /* runtime that came into the pool and has not yet released a task */
	s64 pool_after_refill_ns;
	u64 refill_at_ns; /* next refill; all have the phase of the first */
	u32 timer_active;
	u32 taken; /* a CPU has taken from the pool since the last refill */
	u64 nr_parked;
	s64 passed_in_walk; /* scratch of the timer */
	s64 looked_at_in_walk;

	/* The numbers of cpu.stat. */
	u64 nr_periods;
	u64 nr_throttled;
	u64 throttled_ns; /* summed over CPUs, as the kernel does */
	u64 nr_bursts;
	u64 burst_used_ns;
	/* Numbers that cpu.stat lacks. */
	u64 parks;
	u64 parked_ns;	       /* summed over tasks */
	u64 kernel_overrun_ns; /* time run in kernel mode while throttled */
	u64 released;
	u64 release_cost_ns; /* summed over CPUs */
	u64 edge_ns;	     /* when runtime last came: a refill, or the end of the limit */
	u64 release_took_ns; /* from edge_ns until the last task released since */
	u64 watchdog_passes;
	u64 pass_ns;	      /* time that tasks ran on watchdog passes, charged to no group */
	u64 passes_next_ns; /* when to look again for tasks that need a pass */
	u64 moved_on;	      /* released tasks that then waited for another level */
	u64 refused; /* boundary visits that the kernel refused */
	u64 parks_queued; /* parks where tasks were queued, without room for a visit */
	/* Runtime that ever came into the pool or paid debt, less what a new limit took out. Forgiven
	 * debt counts as paid. */
	s64 refilled_ns;

	/* CPUs throttled since the last release: their number, and the sum of their start times. */
	u64 throttled_cpus;
	u64 throttled_since_sum_ns;
	u64 parked_seq;

	/* The nearest group with a limit, this one or above; valid while limited_seq is
	 * cbw_limits_seq. */
	u64 limited;
	u64 limited_seq;

	/* For the scheduler. */
	u32 weight;
	u32 share_epoch;
	u64 share;	    /* share of the machine; 1 << 20 is the whole */
	u64 sum_epoch;
	u64 sum_weight;	    /* sum over children that ran in this epoch */
	u64 sum_weight_old; /* and in the previous epoch */
	u64 tag[LLC_MAX];   /* virtual time up to which the group has had turns */
	struct cbw_cpu cpu[];
};

struct cbw_task {
	u64 group;	/* arena address */
	u64 group_id;	/* cgroup id of `group` when it was stored here */
	u64 parked;	/* the group at whose boundary the task waits, 0 if it does not */
	u64 parked_at_ns;
	/* Time of the first park since the last turn, 0 if there was a turn since; its place in the
	 * queue. */
	u64 waits_since_ns;
	u64 turn_ns;	/* length of the turn after a release; 0 once it has begun */
	u64 turn_ends_ns; /* sum_exec_runtime at which that turn ends, 0 without such a turn */
	u64 exec_ns;	/* p->se.sum_exec_runtime up to which the task was charged */
	u64 charged_at_ns;
	u32 requested;	/* a visit to the boundary is on its way */
	u32 at_boundary;/* has not run in user mode since its visit */
	u32 hopped;	/* has been through enqueue with migration disabled */
	u32 slot;	/* of the two task_work slots, the one to try first */
	u32 no_room;	/* cannot visit the boundary: parked where it is next queued without a sleep */
	u32 pad;

	u64 boundary_visits;
	u64 hops; /* visits after which migration was still disabled at the first attempt to park */
	u64 parks;
	u64 parked_ns;
	u64 boundary_ns;   /* from the visit to the park */
	u64 visited_at_ns;
	u64 kernel_overrun_ns;

	/* For the scheduler. */
	u64 prepaid;	   /* virtual time charged at enqueue */
	u64 ran_from_ns;
	u32 queued_llc;
	u32 passing; /* on a watchdog pass: its run time until the next park is not charged */
};

/* Reasons for which the program refused to load or to create a group; see src/refusal.rs. */
enum refusal_kind {
	REFUSED_NOTHING = 0,
	REFUSED_DEPTH = 1,
	REFUSED_MEMORY = 2,
	REFUSED_GROUPS = 3,
	REFUSED_DSQ = 4,
	REFUSED_PARENT = 5,
	REFUSED_SHARE = 6,
};
struct refusal {
	u32 kind;
	s32 error;
	u64 group_id;
	u64 level;
};

struct exit_record {
	s32 kind;
	s32 recorded;
	s64 code;
	char reason[128];
	char message[1024];
	char dump[32768];
};

#endif
