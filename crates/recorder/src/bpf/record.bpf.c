/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The recorder's program in the kernel: reports switches, wakeups, forks, system calls and socket
 * events.
 *
 * Threads are chosen (all; a group and those below it; processes and their descendants). A thread
 * that wakes a chosen one or is woken by one is a partner. Both are recorded. Of other threads only
 * the time is recorded in which they keep a CPU busy. Each CPU has its own ring, so CPUs do not
 * wait for each other. A record that finds its ring full is counted as lost.
 *
 * Left out: contents of messages, and everything that replay does not use.
 */
#include "who.bpf.h"

char _license[] SEC("license") = "GPL";

#define PREEMPTED 0x100
#define REPORTED 0x7f
#define NOLOAD 0x402
#define IDLE_STATE 0x80
#define TCP_ESTABLISHED 1
#define TCP_CLOSE 7
#define MSG_PEEK 2
/* A packet to the same machine is delivered within this time. */
#define DELIVERED_NS 1000000

/*
 * Flags that say whether an interrupt has hit the running thread. The loader puts the kernel's
 * per-CPU variable `preempt_count` here, or 0 where it has none; then interrupts with tracepoints
 * are counted.
 */
static __always_inline u32 context(struct cpu *cpu)
{
	void *variable, *here;
	u32 count;

	asm volatile("%0 = 0x70726565 ll" : "=r"(variable));
	if (!variable)
		return (cpu->hard ? FLAG_HARDIRQ : 0) | (cpu->soft ? FLAG_SOFTIRQ : 0);
	here = bpf_this_cpu_ptr(variable);
	count = *(u32 *)(here + preempt_count_at);
	return (count & 0x000f0000 ? FLAG_HARDIRQ : 0) | (count & 0x00000100 ? FLAG_SOFTIRQ : 0);
}

/*
 * Whether the running thread causes the event. An interrupt has nothing to do with the thread that
 * it hits. But a packet to the same machine is delivered in a software interrupt of its sender.
 */
static __always_inline bool is_own(struct cpu *cpu, u32 context)
{
	if (!(context & (FLAG_HARDIRQ | FLAG_SOFTIRQ)))
		return true;
	return !(context & FLAG_HARDIRQ) && cpu->sent_tid == (s32)bpf_get_current_pid_tgid() &&
	       bpf_ktime_get_boot_ns() - cpu->sent_ns < DELIVERED_NS;
}

/* The running thread sends a packet to its own machine. */
SEC("tp_btf/netif_rx")
int on_packet(u64 *ctx)
{
	u32 number;
	struct cpu *cpu = this_cpu(&number);

	if (cpu && !context(cpu)) {
		cpu->sent_tid = (s32)bpf_get_current_pid_tgid();
		cpu->sent_ns = bpf_ktime_get_boot_ns();
	}
	return 0;
}

static __always_inline int interrupt(s32 hard, s32 soft)
{
	u32 number;
	struct cpu *cpu = this_cpu(&number);

	if (!cpu)
		return 0;
	if (hard > 0 || cpu->hard)
		cpu->hard += hard;
	if (soft)
		cpu->soft = soft > 0;
	return 0;
}

#define INTERRUPT(name, tracepoint, hard, soft) \
	SEC("tp_btf/" tracepoint)               \
	int name(u64 *ctx)                      \
	{                                       \
		return interrupt(hard, soft);   \
	}
INTERRUPT(on_hard_begin, "irq_handler_entry", 1, 0)
INTERRUPT(on_hard_end, "irq_handler_exit", -1, 0)
INTERRUPT(on_timer_begin, "hrtimer_expire_entry", 1, 0)
INTERRUPT(on_timer_end, "hrtimer_expire_exit", -1, 0)
INTERRUPT(on_soft_begin, "softirq_entry", 0, 1)
INTERRUPT(on_soft_end, "softirq_exit", 0, -1)

static __always_inline u32 kthread(struct task_struct *p)
{
	return p->flags & PF_KTHREAD ? FLAG_KTHREAD : 0;
}

static __always_inline void describe(struct thread *to, struct task_struct *p, u64 group)
{
	to->tid = p->pid;
	to->pid = p->tgid;
	to->prio = p->prio;
	to->group = id_in(group);
	__builtin_memcpy(to->comm, p->comm, sizeof(to->comm));
}

static __always_inline u32 state_of(struct task_struct *p, bool preempt, u64 *ctx)
{
	u64 state;

	if (preempt)
		return PREEMPTED;
	if (has_prev_state)
		state = (u32)ctx[3];
	else if (field_exists(p->__state))
		state = p->__state;
	else
		state = ((struct task_struct___before_5_14 *)p)->state;
	if ((state & NOLOAD) == NOLOAD)
		return IDLE_STATE;
	return (state | p->exit_state) & REPORTED;
}

SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	u32 number, prev_class, next_class, flags = 0;
	s32 prev_tid = prev->pid, next_tid = next->pid;
	struct cpu *cpu = this_cpu(&number);
	struct switched *record;
	u64 sum_ns, group;

	if (!cpu)
		return 0;
	prev_class = seen_class(cpu);
	if (prev_class != CLASS_UNKNOWN && seen_tid(cpu) == prev_tid)
		flags = FLAG_CHARGED;
	else
		prev_class = class_of(prev_tid, group_of(prev, cpu, number));
	sum_ns = cpu->sum_ns;
	group = group_of(next, cpu, number);
	next_class = class_of(next_tid, group);
	/* An exiting thread may have become a partner again after on_exit(). */
	if (prev_class == CLASS_PARTNER && prev->exit_state)
		bpf_map_delete_elem(&partners, &prev_tid);
	/* No switch happens inside an interrupt. */
	cpu->hard = 0;
	cpu->soft = 0;
	runs(cpu, next_tid, next_class);
	cpu->sum_ns = next->se.sum_exec_runtime;
	if (prev_class == CLASS_OTHER && next_class == CLASS_OTHER)
		return 0;
	record = reserve(cpu, number, sizeof(*record));
	if (!record)
		return 0;
	if (prev_class == CLASS_OTHER)
		flags |= FLAG_PREV_OTHER;
	if (next_class == CLASS_OTHER)
		flags |= FLAG_NEXT_OTHER;
	head(&record->head, cpu, number, KIND_SWITCH, flags | kthread(next));
	record->head.tid = prev_tid;
	record->head.pid = prev->tgid;
	record->sum_ns = prev->se.sum_exec_runtime;
	record->charged_ns = record->sum_ns - sum_ns;
	describe(&record->next, next, group);
	record->next.state = state_of(prev, ctx[0], ctx);
	submit(cpu, record);
	return 0;
}

#define READ(to, from) bpf_probe_read_kernel(&(to), sizeof(to), &(from))

/* Describes the running thread, of which only the address is known. */
static __always_inline void describe_current(struct switched *record, struct cpu *cpu, struct task_struct *p, u64 group)
{
	u64 sum_ns = 0;

	READ(record->next.tid, p->pid);
	READ(record->next.pid, p->tgid);
	READ(record->next.prio, p->prio);
	READ(record->next.comm, p->comm);
	READ(sum_ns, p->se.sum_exec_runtime);
	record->next.state = PREEMPTED;
	record->next.group = group;
	record->charged_ns = sum_ns - cpu->sum_ns;
	record->sum_ns = sum_ns;
	cpu->sum_ns = sum_ns;
}

/* The running thread becomes a partner: it is recorded from now on. */
static __noinline void joins(struct cpu *cpu, u32 number)
{
	struct task_struct *p = (void *)bpf_get_current_task();
	struct switched *record;
	s32 tid = seen_tid(cpu);

	becomes_partner(tid);
	runs(cpu, tid, CLASS_PARTNER);
	record = reserve(cpu, number, sizeof(*record));
	if (!record)
		return;
	head(&record->head, cpu, number, KIND_SWITCH, FLAG_PREV_OTHER);
	describe_current(record, cpu, p, 0);
	record->charged_ns = 0;
	record->sum_ns = 0;
	submit(cpu, record);
}

static __always_inline bool is_running(struct cpu *cpu)
{
	return seen_tid(cpu) == (s32)bpf_get_current_pid_tgid();
}

/* Finds and reports the running thread after a missed switch. False: it is still unknown. */
static __noinline bool find_out(struct cpu *cpu, u32 number)
{
	struct task_struct *p = (void *)bpf_get_current_task();
	struct css_set *set = NULL;
	struct cgroup_subsys_state *css = NULL;
	struct cgroup *group = NULL;
	struct kernfs_node *node = NULL;
	struct switched *record;
	u32 *known, class;
	u64 id = 0;
	s32 tid = 0;

	READ(tid, p->pid);
	READ(set, p->cgroups);
	if (is_version_1) {
		READ(css, set->subsys[CPU_CONTROLLER]);
		READ(group, css->cgroup);
	} else {
		READ(group, set->dfl_cgrp);
	}
	READ(node, group->kn);
	READ(id, node->id);
	known = bpf_map_lookup_elem(&groups, &id);
	/* The class of an unknown group is found out at a later event. */
	if (!known && mode == MODE_GROUP && tid)
		return false;
	class = class_of(tid, with_class(id, known ? *known : CLASS_OTHER));
	runs(cpu, tid, class);
	record = reserve(cpu, number, sizeof(*record));
	if (!record)
		return true;
	head(&record->head, cpu, number, KIND_BEAT, class == CLASS_OTHER ? FLAG_NEXT_OTHER : 0);
	describe_current(record, cpu, p, known ? id : 0);
	submit(cpu, record);
	return true;
}

/* Whether the running thread is known; some switches are missed. */
static __always_inline bool is_known(struct cpu *cpu, u32 number)
{
	return is_running(cpu) || (seen_class(cpu) != CLASS_UNKNOWN && find_out(cpu, number));
}

static __always_inline void tell(struct task_struct *p, struct cpu *cpu, u32 number, u32 kind, u32 flags)
{
	u64 group = group_of(p, cpu, number);
	struct switched *record = reserve(cpu, number, sizeof(*record));

	if (!record)
		return;
	head(&record->head, cpu, number, kind, flags | kthread(p));
	describe(&record->next, p, group);
	record->next.state = 0;
	record->charged_ns = 0;
	record->sum_ns = 0;
	submit(cpu, record);
}

SEC("tp_btf/sched_waking")
int on_waking(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	u32 number, class, waker, flags;
	struct cpu *cpu = this_cpu(&number);
	s32 tid = p->pid;

	if (!cpu)
		return 0;
	flags = context(cpu);
	if (mode != MODE_ALL) {
		class = class_of(tid, group_of(p, cpu, number));
		waker = is_own(cpu, flags) && is_known(cpu, number) ? seen_class(cpu) : CLASS_UNKNOWN;
		if (class == CLASS_CHOSEN && waker == CLASS_OTHER)
			joins(cpu, number);
		else if (waker == CLASS_CHOSEN && class == CLASS_OTHER)
			becomes_partner(tid);
		else if (class < CLASS_PARTNER)
			return 0;
	}
	tell(p, cpu, number, KIND_WAKING, flags);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int on_new(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct cpu *cpu;
	u32 number;

	cpu = this_cpu(&number);
	if (!cpu)
		return 0;
	if (class_of(p->pid, group_of(p, cpu, number)) >= CLASS_PARTNER)
		tell(p, cpu, number, KIND_NEW, 0);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int on_fork(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	s32 parent_tid = parent->pid, tid = child->pid;
	u32 number, of_child, one = 1;
	struct cpu *cpu;
	bool known;

	cpu = this_cpu(&number);
	if (!cpu)
		return 0;
	if (mode == MODE_PROCESS && bpf_map_lookup_elem(&chosen, &parent_tid) &&
	    bpf_map_update_elem(&chosen, &tid, &one, BPF_ANY))
		__sync_fetch_and_add(&cpu->no_room, 1);
	of_child = class_of(tid, group_of(child, cpu, number));
	known = is_known(cpu, number);
	if (of_child < CLASS_PARTNER && !(known && seen_class(cpu) >= CLASS_PARTNER))
		return 0;
	if (of_child == CLASS_CHOSEN && known && seen_class(cpu) == CLASS_OTHER)
		joins(cpu, number);
	tell(child, cpu, number, KIND_FORK, 0);
	return 0;
}

/* The thread executes another program and gets its name. */
SEC("tp_btf/sched_process_exec")
int on_exec(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct cpu *cpu;
	u32 number;

	cpu = this_cpu(&number);
	if (cpu && seen_class(cpu) >= CLASS_PARTNER && is_running(cpu))
		tell(p, cpu, number, KIND_EXEC, 0);
	return 0;
}

/* A restarted service has a new group at the old path, which becomes the chosen one. */
SEC("tp_btf/cgroup_mkdir")
int on_mkdir(u64 *ctx)
{
	struct cgroup *group = (void *)ctx[0];
	struct followed *wanted;
	u32 only = 0;
	int i;

	wanted = bpf_map_lookup_elem(&followed, &only);
	if (!wanted || group->root->hierarchy_id != wanted->hierarchy)
		return 0;
	/* Safe without a lock: the kernel makes groups one after the other. */
	if (bpf_probe_read_kernel_str(wanted->made, GROUP_PATH_MAX, (void *)ctx[1]) !=
	    wanted->length)
		return 0;
	for (i = 0; i < GROUP_PATH_MAX; i++) {
		if (wanted->made[i] != wanted->path[i])
			return 0;
		if (!wanted->path[i])
			break;
	}
	wanted->id = group->kn->id;
	wanted->made_ns = bpf_ktime_get_boot_ns();
	return 0;
}

/* The id may be used again soon. Until the thread leaves, its class is kept with the CPU. */
SEC("tp_btf/sched_process_exit")
int on_exit(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	s32 tid = p->pid;

	bpf_map_delete_elem(&chosen, &tid);
	bpf_map_delete_elem(&partners, &tid);
	return 0;
}

/* Until the running thread is known: a switch may take long. */
static __always_inline int look_again(void)
{
	u32 number;
	struct cpu *cpu = this_cpu(&number);

	if (cpu && seen_class(cpu) == CLASS_UNKNOWN)
		find_out(cpu, number);
	return 0;
}

/* Some times a second on each CPU. */
SEC("perf_event")
int on_beat(void *ctx)
{
	return look_again();
}

/* With each tick, where the kernel refuses the beat. */
SEC("tp_btf/hrtimer_expire_entry")
int on_tick(u64 *ctx)
{
	return look_again();
}

static __always_inline bool is_told(struct cpu *cpu, u32 number)
{
	return cpu && is_known(cpu, number) && seen_class(cpu) >= CLASS_PARTNER;
}

static __always_inline u64 argument(u64 value, u32 telling, u32 which)
{
	return telling & (1 << which) ? value : 0;
}

SEC("tp_btf/sys_enter")
int on_enter(u64 *ctx)
{
	struct pt_regs *regs = (void *)ctx[0];
	struct entered *record;
	u32 number, call, *told;
	struct cpu *cpu;

	cpu = this_cpu(&number);
	if (!is_told(cpu, number))
		return 0;
	record = reserve(cpu, number, sizeof(*record));
	if (!record)
		return 0;
	head(&record->head, cpu, number, KIND_ENTER, 0);
	record->number = ctx[1];
	call = ctx[1];
	told = bpf_map_lookup_elem(&telling, &call);
	__builtin_memset(record->args, 0, sizeof(record->args));
	if (told && *told) {
		u32 which = *told;

#if defined(__TARGET_ARCH_x86)
		record->args[0] = argument(regs->di, which, 0);
		record->args[1] = argument(regs->si, which, 1);
		record->args[2] = argument(regs->dx, which, 2);
		record->args[3] = argument(regs->r10, which, 3);
		record->args[4] = argument(regs->r8, which, 4);
#elif defined(__TARGET_ARCH_arm64)
		record->args[0] = argument(regs->regs[0], which, 0);
		record->args[1] = argument(regs->regs[1], which, 1);
		record->args[2] = argument(regs->regs[2], which, 2);
		record->args[3] = argument(regs->regs[3], which, 3);
		record->args[4] = argument(regs->regs[4], which, 4);
#endif
	}
	submit(cpu, record);
	return 0;
}

static __always_inline void tell_call(struct cpu *cpu, u32 number, u32 kind, u64 of, s64 value)
{
	struct called *record = reserve(cpu, number, sizeof(*record));

	if (!record)
		return;
	head(&record->head, cpu, number, kind, 0);
	record->number = of;
	record->value = value;
	submit(cpu, record);
}

SEC("tp_btf/sys_exit")
int on_leave(u64 *ctx)
{
	struct cpu *cpu;
	u32 number;

	cpu = this_cpu(&number);
	if (is_told(cpu, number))
		tell_call(cpu, number, KIND_LEAVE, 0, ctx[1]);
	return 0;
}

/* The socket's cookie, which is unique; addresses are used again. */
static __always_inline u64 socket_at(u64 address)
{
	return bpf_get_socket_cookie((void *)address);
}

/* Reports a message, and notes whether the socket is used by a recorded thread. */
static __always_inline void message(u64 socket, s32 result, u32 kind)
{
	struct cpu *cpu;
	u32 number, told, *known;

	cpu = this_cpu(&number);
	told = is_told(cpu, number);
	known = bpf_map_lookup_elem(&sockets, &socket);
	if (known && *known != told)
		*known = told;
	else if (!known && told)
		bpf_map_update_elem(&sockets, &socket, &told, BPF_ANY);
	if (told && cpu)
		tell_call(cpu, number, kind, socket, result);
}

SEC("tp_btf/sock_send_length")
int on_sent(u64 *ctx)
{
	message(socket_at(ctx[0]), ctx[1], KIND_SENT);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int on_received(u64 *ctx)
{
	if (!(ctx[2] & MSG_PEEK))
		message(socket_at(ctx[0]), ctx[1], KIND_RECEIVED);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int on_ready(u64 *ctx)
{
	u64 socket = socket_at(ctx[0]);
	u32 number, *known;
	struct cpu *cpu;

	known = bpf_map_lookup_elem(&sockets, &socket);
	if (mode != MODE_ALL && !(known && *known))
		return 0;
	cpu = this_cpu(&number);
	if (cpu)
		tell_call(cpu, number, KIND_READY, socket, 0);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int on_state(u64 *ctx)
{
	u64 socket = socket_at(ctx[0]);
	u32 number, old = ctx[1], new = ctx[2], fresh = 1, *known;
	struct cpu *cpu;

	if (new == TCP_ESTABLISHED)
		bpf_map_update_elem(&sockets, &socket, &fresh, BPF_ANY);
	known = bpf_map_lookup_elem(&sockets, &socket);
	if (mode != MODE_ALL && !(known && *known))
		return 0;
	cpu = this_cpu(&number);
	if (cpu)
		tell_call(cpu, number, KIND_STATE, socket, (u64)old << 32 | new);
	if (new == TCP_CLOSE)
		bpf_map_delete_elem(&sockets, &socket);
	return 0;
}
