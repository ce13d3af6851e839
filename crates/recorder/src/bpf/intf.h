/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Records of the BPF program: a head, and what each kind adds. src/live/raw.rs parses them.
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
	/* The leaving, or the next, thread is not recorded. */
	FLAG_PREV_OTHER = 8,
	FLAG_NEXT_OTHER = 16,
	FLAG_KTHREAD = 32,
	/* `charged_ns` is valid. */
	FLAG_CHARGED = 64,
};

struct head {
	u64 time_ns;
	/* Lost records of this CPU so far, the lowest bits. */
	u32 lost;
	u16 cpu;
	u8 kind;
	u8 flags;
	/* The running thread. */
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
 * Also for wakeup, fork and beat. Only a switch has `state` and CPU times: of the leaving thread,
 * since it came and since its start.
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

/* End of a system call, or an event of a socket. */
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

#define GROUP_PATH_MAX 512

/* The chosen group, which may be removed and made again at its path. */
struct followed {
	u64 id;
	/* When it was last made again; 0: never. */
	u64 made_ns;
	s32 hierarchy;
	/* Length of the path with its NUL; 0: unknown. */
	s32 length;
	char path[GROUP_PATH_MAX];
	/* Path of the group that was made last. */
	char made[GROUP_PATH_MAX];
};

/* State and counters of a CPU. */
struct cpu {
	/* CPU time of its thread at the last switch. */
	u64 sum_ns;
	/* Its running thread and that thread's class: see with_class(). */
	u64 runs;
	/* The last group that was looked up, and its class: see with_class(). */
	u64 group;
	/* Records that found the ring full. */
	u64 lost;
	/* Threads that are not recorded, as the table of chosen threads is full. */
	u64 no_room;
	u64 records;
	/* Sum and number of some measured times of writing a record. */
	u64 cost_ns;
	u64 cost_of;
	/* Interrupts on top of the running thread, where they are counted. */
	u32 hard;
	u32 soft;
	/* The last sender of a packet to this machine, and the time. */
	u64 sent_ns;
	s32 sent_tid;
	u32 unused;
};

#endif
