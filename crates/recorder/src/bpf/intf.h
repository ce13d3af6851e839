/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the BPF program hands to the recorder: records of a head and what their kind adds. src/raw.rs reads them.
 */
#ifndef RECORDER_INTF_H
#define RECORDER_INTF_H

enum kind {
	KIND_SWITCH = 1,
	KIND_WAKING,
	KIND_NEW,
	KIND_FORK,
	KIND_BEAT,
	KIND_GROUP,
	KIND_ENTER,
	KIND_LEAVE,
	KIND_SENT,
	KIND_RECEIVED,
	KIND_READY,
	KIND_STATE,
	KIND_EXEC,
};

enum flag {
	FLAG_HARDIRQ = 1,
	FLAG_SOFTIRQ = 2,
	/* The thread that leaves, or comes, is none of those that are recorded. */
	FLAG_PREV_OTHER = 8,
	FLAG_NEXT_OTHER = 16,
	FLAG_KTHREAD = 32,
	/* `charged_ns` is known. */
	FLAG_CHARGED = 64,
};

struct head {
	u64 time_ns;
	/* Records of this CPU that found no room so far, the lowest bits of how many. */
	u32 lost;
	u16 cpu;
	u8 kind;
	u8 flags;
	/* The thread that runs. */
	s32 tid;
	s32 pid;
};

struct thread {
	s32 tid;
	s32 pid;
	s32 prio;
	u32 state;
	u64 group;
	char comm[16];
};

/*
 * Also of a wakeup, a fork and a beat. Only of a switch are there `state` and CPU times, of the thread that leaves: since it
 * came, and since it was born.
 */
struct switched {
	struct head head;
	u64 charged_ns;
	u64 sum_ns;
	struct thread next;
};

struct grouped {
	struct head head;
	u64 id;
	u64 parent;
	char name[256];
};

/* The end of a system call, or what happens at a socket. */
struct called {
	struct head head;
	u64 number;
	s64 value;
};

struct entered {
	struct head head;
	u64 number;
	u64 args[5];
};

#define PATH_MOST 512

/* The group that is chosen, which may be removed and made again at its path. */
struct followed {
	u64 id;
	/* When it was made again last; 0: never. */
	u64 made_ns;
	s32 hierarchy;
	/* Of the path with its end; 0: it is not known. */
	s32 length;
	char path[PATH_MOST];
	/* That of the group that was made last. */
	char made[PATH_MOST];
};

/* What is known of a CPU, and what it told so far. */
struct cpu {
	/* How much CPU time its thread had when it was last told. */
	u64 sum_ns;
	/* Its thread, and what that is to the recorder: see with_class(). */
	u64 runs;
	/* The last group that was looked up, and what came of it, in the same way. */
	u64 group;
	/* Records that found no room. */
	u64 lost;
	/* Threads that are not recorded though they should be, as there was no room to remember them. */
	u64 no_room;
	u64 records;
	/* How long some of them took, and how many that were. */
	u64 cost_ns;
	u64 cost_of;
	/* Interrupts that have hit the thread that runs, where they are counted. */
	u32 hard;
	u32 soft;
	/* Who sent a packet to this machine here last, and when. */
	u64 sent_ns;
	s32 sent_tid;
	u32 unused;
};

#endif
