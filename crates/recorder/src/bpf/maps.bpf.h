/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Settings from the loader, and state between events. */
#ifndef RECORDER_MAPS_BPF_H
#define RECORDER_MAPS_BPF_H

#include "kernel.bpf.h"
#include "intf.h"

enum mode { MODE_ALL, MODE_GROUP, MODE_PROCESS };
/* Threads of class PARTNER and above are recorded. */
enum class { CLASS_UNKNOWN, CLASS_IDLE, CLASS_OTHER, CLASS_PARTNER, CLASS_CHOSEN };

/* Set by the loader. */
const volatile u32 mode = MODE_ALL;
/* Groups are those of the controller `cpu` in cgroup v1; else those of cgroup v2. */
const volatile u32 is_version_1 = 0;
/* The tracepoint has the state in which a thread leaves (Linux 5.18). */
const volatile u32 has_prev_state = 0;
/* Offset of `preempt_count` in its variable. */
const volatile u32 preempt_count_at = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_RINGBUF);
		__uint(max_entries, 1 << 20);
	});
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* Chosen threads in MODE_PROCESS; none is forgotten. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, s32);
	__type(value, u32);
} chosen SEC(".maps");

/* Partners; if there are too many the oldest are forgotten. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, s32);
	__type(value, u32);
} partners SEC(".maps");

/* The chosen group in MODE_GROUP. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct followed);
} followed SEC(".maps");

/* Reported groups, with their class. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, u32);
} groups SEC(".maps");

/* TCP connections that are new or last used by a recorded thread (1), or by another (0). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, u32);
} sockets SEC(".maps");

/* For each system call, a bit mask of the arguments to record. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} telling SEC(".maps");

#endif
