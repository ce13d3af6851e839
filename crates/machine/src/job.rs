//! Jobs: programs that tokens carry, executed by the task that takes such a token.
//!
//! A task that serves a channel executes the program of the job it took, and then continues its
//! own. Tokens scheduled for later wait in [`Due`].

use crate::Error;
use crate::channel::{DueToken, JobCounts, NO_JOB, Token};
use crate::events::Event;
use crate::ids::{ChannelId, Id, TaskId};
use crate::machine::Machine;
use crate::step::Step;
use cpumax_workload::{Op, Span};

impl<'a> Machine<'a> {
    /// The program that a task executes: its kind's, or its job's.
    #[inline]
    pub(crate) fn program_of(&self, task: TaskId) -> &'a [Op] {
        self.settings.programs[self.tasks[task].at.program as usize]
    }

    /// The instruction that a task executed last, or executes now; `None` before its first.
    fn last_op(&self, task: TaskId) -> Option<&'a Op> {
        let at = self.tasks[task].at.pc.checked_sub(1)?;
        self.program_of(task).get(at as usize)
    }

    /// The token that a task which waits for room in a channel is sending.
    pub(crate) fn token_of(&self, task: TaskId) -> Token {
        match self.last_op(task) {
            Some(&Op::Post { job, .. }) => self.job_token(task, job),
            _ => Token::plain(self.now),
        }
    }

    /// The token with a job that a task posts; it carries the start of the task's current request.
    pub(crate) fn job_token(&self, task: TaskId, job: u32) -> Token {
        Token { since_ns: self.tasks[task].at.request_since_ns(), job }
    }

    /// Gives a received token to a task: the token's request becomes the task's current one, and
    /// its job the next instructions. A token received during a job does not begin another request.
    #[inline]
    pub(crate) fn take_token(&mut self, task: TaskId, token: Token) {
        let t = &mut self.tasks[task];
        if !t.does_job() {
            t.at.request_start_ns = token.since_ns;
        }
        if token.job != NO_JOB || t.at.begun_ns.is_some() {
            self.begin_request(task, token.job);
        }
    }

    /// Makes a received token's job the task's program, if it serves jobs, and counts it; other
    /// tasks ignore jobs.
    #[inline(never)]
    fn begin_request(&mut self, task: TaskId, job: u32) {
        let serves = matches!(self.last_op(task), Some(Op::Serve { .. }));
        if serves {
            self.tasks[task].at.begun_ns = None;
        }
        if job == NO_JOB {
            return;
        }
        if !serves {
            self.channels.counts.ignored += 1;
            return;
        }
        self.channels.counts.begun += 1;
        let kinds = self.workload.tasks.len() as u32;
        let t = &mut self.tasks[task];
        t.at.continues_at = t.at.pc;
        (t.at.program, t.at.pc) = (kinds + job, 0);
    }

    /// Has the running task send a token with a job to a channel, after the time that the call
    /// takes under noise; it may wait for room.
    #[inline(never)]
    pub(crate) fn post(&mut self, task: TaskId, channel: ChannelId, job: u32) {
        if !self.delay_call(task, Step::Send) {
            self.send(task, channel, 1, self.job_token(task, job));
        }
    }

    /// Ends a task's job: it continues with its own program, behind the instruction that received
    /// the job.
    #[inline(never)]
    pub(crate) fn end_job(&mut self, task: TaskId) {
        self.channels.counts.ended += 1;
        let t = &mut self.tasks[task];
        (t.at.program, t.at.pc) = (t.kind, t.at.continues_at);
    }

    /// Schedules a token with a job of the running task for after a drawn delay, unless that is
    /// beyond the run's end. `keep`: the token continues the task's request. The run fails if too
    /// many are scheduled.
    #[inline(never)]
    pub(crate) fn post_later(
        &mut self,
        task: TaskId,
        delay: Span,
        (channel, job): (ChannelId, u32),
        keep: bool,
    ) {
        let due_ns = self.now.saturating_add(self.draw_span(task, delay));
        let since_ns = keep.then(|| self.tasks[task].at.request_since_ns());
        if due_ns > self.workload.duration_ns {
            return;
        }
        if let Some(place) = self.channels.due.put(DueToken { channel, job, since_ns }) {
            self.events.heap.push(self.action_time_ns(due_ns), Event::TokenDue(place));
        } else {
            let at_ns = self.now;
            self.events.failed.get_or_insert(Error::TooManyDue { at_ns });
        }
    }

    /// Puts a token that was scheduled for now, stored at this place, into its channel.
    pub(crate) fn deliver_due(&mut self, place: u32) {
        let DueToken { channel, job, since_ns } = self.channels.due.take(place);
        let since_ns = since_ns.unwrap_or(self.now);
        self.deliver_token(channel, Token { since_ns, job });
    }

    /// Puts a token from outside into its channel, which may wake a receiver: on the outside task's
    /// CPU, or without one on that of the receiver.
    pub(crate) fn deliver_token(&mut self, channel: ChannelId, token: Token) {
        let mut here = self.events.here;
        if let Some(&receiver) = self.channels.all[channel].receivers.front() {
            let cpu = self.tasks[receiver].cpu;
            if here.is_none() && self.cpus[cpu].irqs_off_until_ns <= self.now {
                here = cpu;
                self.touch(cpu, true);
            }
        }
        self.on(here, |m| m.put_tokens(channel, 1, token));
    }

    /// Checks that no token is lost, and no job executed twice.
    ///
    /// # Errors
    /// The counts that do not match.
    pub(crate) fn check_tokens(&self) -> Result<(), String> {
        let mut in_channels = 0;
        for (channel, c) in self.channels.all.iter() {
            let there: u64 = c.arrivals.iter().map(|arrived| arrived.n).sum();
            if there != c.tokens {
                let name = &self.workload.channels[channel.ix()].name;
                return Err(format!("channel {name}: {} tokens, and {there} are there", c.tokens));
            }
            let carry = c.arrivals.iter().filter(|arrived| arrived.token.job != NO_JOB);
            in_channels += carry.map(|arrived| arrived.n).sum::<u64>();
        }
        let JobCounts { put, begun, ignored, ended, broken_off } = self.channels.counts;
        let doing = self
            .tasks
            .iter()
            .filter(|(_, t)| t.does_job() && t.state != crate::task::State::Exited);
        let doing = doing.count() as u64;
        if put != in_channels + begun + ignored || begun != ended + broken_off + doing {
            return Err(format!(
                "{put} tokens with jobs came, {in_channels} are in channels, {ignored} were \
                 ignored, {begun} begun, {doing} are under way, {ended} ended, {broken_off} \
                 broken off"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
