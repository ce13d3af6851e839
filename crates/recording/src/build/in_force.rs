//! Limits in force on the chosen threads while they were recorded.

use super::{Selection, is_in};
use crate::about::Ended;
use crate::recording::Recording;
use cpumax_limit::Limit;

impl Recording {
    /// The limit under which the selection's chosen threads were recorded. `None` if the recording
    /// does not tell it, it changed, there is none, or the threads are not all in one group.
    pub fn limit_of(&self, selection: &Selection) -> Option<Limit> {
        let about = self.machine.about.as_deref()?;
        let (path, is_same) = self.group_of(selection)?;
        let group = about.groups.iter().find(|group| group.path == path)?;
        let is_changed = |ended: &Ended| ended.changes.iter().any(|change| change.path == path);
        let is_kept = !self.machine.ended.as_deref().is_some_and(is_changed);
        group.limit().filter(|limit| is_same && is_kept && limit.quota_ns().is_some())
    }

    /// Path of the nearest group above all threads chosen by patterns, if it or a group above it
    /// has a limit. That limit holds the threads wherever the replay puts them.
    pub fn limited_above(&self, selection: &Selection) -> Option<&str> {
        let about = self.machine.about.as_deref()?;
        let (path, is_same) = self.group_of(selection)?;
        let above = if selection.limited.is_empty() {
            return None;
        } else if is_same {
            path.rsplit_once('/')?.0
        } else {
            path
        };
        let limits = |path: &str| {
            let mut told = about.groups.iter().filter(|group| is_in(path, &group.path));
            told.any(|group| group.limit().is_some_and(|limit| limit.quota_ns().is_some()))
        };
        (!above.is_empty() && limits(above)).then_some(above)
    }

    /// The innermost group that has all chosen threads in or below it, and whether none is below.
    /// `None` if there are no such threads, or a group is unknown.
    fn group_of(&self, selection: &Selection) -> Option<(&str, bool)> {
        let inside = self.inside(&self.names(), selection);
        let chosen = self.threads.iter().zip(&inside).filter(|(_, inside)| **inside);
        let mut paths = chosen.map(|(thread, _)| self.group_path(thread));
        let (mut common, mut is_same) = (paths.next()??, true);
        for path in paths {
            let path = path?;
            is_same &= path == common;
            while !is_in(path, common) {
                common = common.rsplit_once('/')?.0;
            }
        }
        Some((common, is_same))
    }
}
