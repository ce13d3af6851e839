/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Writes records: reserves room in the CPU's ring, fills the head, submits. */
#ifndef RECORDER_RING_BPF_H
#define RECORDER_RING_BPF_H

#include "maps.bpf.h"

#define COST_EVERY 256

static __always_inline struct cpu *this_cpu(u32 *number)
{
	*number = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&cpus, number);
}

static __always_inline void *reserve(struct cpu *cpu, u32 number, u64 size)
{
	void *ring, *record = NULL;

	ring = bpf_map_lookup_elem(&rings, &number);
	if (ring)
		record = bpf_ringbuf_reserve(ring, size, 0);
	if (!record)
		__sync_fetch_and_add(&cpu->lost, 1);
	return record;
}

static __always_inline void head(struct head *head, struct cpu *cpu, u32 number, u32 kind, u32 flags)
{
	u64 id = bpf_get_current_pid_tgid();

	head->time_ns = bpf_ktime_get_boot_ns();
	head->lost = (u32)cpu->lost;
	head->cpu = number;
	head->kind = kind;
	head->flags = flags;
	head->tid = (s32)id;
	head->pid = (s32)(id >> 32);
}

static __always_inline void submit(struct cpu *cpu, void *record)
{
	u64 began_ns = ((struct head *)record)->time_ns;

	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	if (cpu->records++ % COST_EVERY == 0) {
		cpu->cost_ns += bpf_ktime_get_boot_ns() - began_ns;
		cpu->cost_of++;
	}
}

#endif
