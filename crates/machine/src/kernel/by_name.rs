//! Rules of a kernel by name, and kernels with a single rule changed, to see its effect. Values
//! are those that kernels have, written as in `rules.rs`.

use super::{Kernel, RELEASES, UNRELEASED};
use crate::rules::Rules;
use cpumax_limit::one_line;

/// A field of [`Rules`].
struct Rule {
    name: &'static str,
    show: fn(&Rules) -> String,
    copy: fn(&Rules, &mut Rules),
}

macro_rules! rules {
    ($($name:ident)*) => {
        const RULES: &[Rule] = &[$(Rule {
            name: stringify!($name),
            show: |rules| format!("{:?}", rules.$name),
            copy: |from, to| to.$name = from.$name,
        }),*];
        // A field that is not listed does not compile.
        const _: fn(Rules) = |Rules { $($name: _),* }| {};
    };
}

rules! {
    expiry refill enqueue_takes_slice throttled_may_take exhaustion second_chance unit
    work_test throttled_insert lump_distribution release precheck limbo_abortable throttle_clock
    pelt_freeze balance_test idle_class_is_free idle_search_by_load newidle_by_success
    delayed_is_load_only period_scaling random_phase slack_armed_once limit_write_leaves_ns offline
    queue delayed_dequeue base_slice_ns lag_limit unprotected reweight reweight_counts_twice
    wakeup_pick idle_sleeper_gains_less fork_preempts change_protects requeue_charges
    delayed_keeps_lag short_slice_ignores_next full_weights rescales_deadline hrtick
    hrtick_each_pick empty_keeps_weight group_share limit_keeps_tick move_tests_preemption preempt
    pull
}

/// Error of changing a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// No rule has this name.
    #[error("there is no rule '{}': give one of {}", one_line(.0), rule_names().join(", "))]
    Unknown(String),
    /// No kernel has this value of the rule.
    #[error("rule {rule} has no value '{}': give one of {}", one_line(.value), .values.join(", "))]
    NoValue {
        /// Name of the rule.
        rule: &'static str,
        /// The value asked for.
        value: String,
        /// The values that exist.
        values: Vec<String>,
    },
}

/// Names of all rules in which kernels differ.
fn rule_names() -> Vec<&'static str> {
    RULES.iter().map(|rule| rule.name).collect()
}

/// The rule with this name.
///
/// # Errors
/// There is none.
fn find_rule(name: &str) -> Result<&'static Rule, RuleError> {
    let rule = RULES.iter().find(|rule| rule.name == name);
    rule.ok_or_else(|| RuleError::Unknown(name.to_owned()))
}

/// The rules of every kernel, oldest first, unreleased ones last.
fn all_rules() -> impl Iterator<Item = &'static Rules> {
    let unreleased = UNRELEASED.iter().map(|kernel| kernel.rules);
    RELEASES.iter().map(|release| release.rules).chain(unreleased)
}

impl Rule {
    /// The rule's values in all kernels as text, each once, oldest kernel first.
    fn values(&self) -> Vec<String> {
        let mut values = Vec::new();
        for value in all_rules().map(self.show) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }
}

/// Each rule in which kernels differ, with the values that kernels have, oldest first.
///
/// ```
/// use cpumax_machine::kernel;
///
/// let rules = kernel::rules();
/// let (_, values) = rules.iter().find(|(name, _)| *name == "offline").unwrap();
/// assert_eq!(*values, ["EveryCpu", "DyingCpu"]);
/// ```
pub fn rules() -> Vec<(&'static str, Vec<String>)> {
    RULES.iter().map(|rule| (rule.name, rule.values())).collect()
}

impl Kernel {
    /// This kernel's value of a rule.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn rule(&self, name: &str) -> Result<String, RuleError> {
        Ok((find_rule(name)?.show)(&self.rules))
    }

    /// Rules in which two kernels differ: the name, this kernel's value, the other's.
    ///
    /// ```
    /// use cpumax_machine::kernel::parse_kernels;
    ///
    /// let [older, newer] = parse_kernels("6.15,6.16").unwrap()[..] else { panic!() };
    /// assert_eq!(older.differs(&newer), [("preempt", "Voluntary".to_owned(), "Lazy".to_owned())]);
    /// ```
    pub fn differs(&self, other: &Kernel) -> Vec<(&'static str, String, String)> {
        let both = RULES
            .iter()
            .map(|rule| (rule.name, (rule.show)(&self.rules), (rule.show)(&other.rules)));
        both.filter(|(_, own, others)| own != others).collect()
    }

    /// This kernel with another value of one rule. The result may be a kernel that never existed,
    /// and not every rule has an effect beside the others.
    ///
    /// ```
    /// use cpumax_machine::kernel::parse_kernels;
    ///
    /// let kernel = parse_kernels("6.12").unwrap()[0];
    /// let changed = kernel.with_rule("release", "Sync").unwrap();
    /// assert_eq!(kernel.rule("release").unwrap(), "Csd");
    /// assert_eq!(changed.rule("release").unwrap(), "Sync");
    /// ```
    ///
    /// # Errors
    /// There is no such rule, or no kernel has this value of it.
    pub fn with_rule(mut self, name: &str, value: &str) -> Result<Kernel, RuleError> {
        let rule = find_rule(name)?;
        let from = all_rules().find(|rules| (rule.show)(rules) == value);
        let from = from.ok_or_else(|| RuleError::NoValue {
            rule: rule.name,
            value: value.to_owned(),
            values: rule.values(),
        })?;
        (rule.copy)(from, &mut self.rules);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_value_on_each_kernel_and_another_somewhere() {
        for (name, values) in rules() {
            assert!(values.len() > 1, "{name} is {values:?} on all kernels: it is no rule");
            for release in RELEASES {
                let kernel = Kernel::of(release.from).unwrap();
                let own = kernel.rule(name).unwrap();
                let there = kernel.with_rule(name, &values[0]).unwrap();
                assert!(there.with_rule(name, &own).unwrap().differs(&kernel).is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn no_two_releases_have_the_same_rules() {
        for (ix, one) in RELEASES.iter().enumerate() {
            for other in &RELEASES[ix + 1..] {
                let [one, other] = [one, other].map(|release| Kernel::of(release.from).unwrap());
                assert!(!one.differs(&other).is_empty(), "{} and {}", one.version, other.version);
            }
        }
    }

    #[test]
    fn an_unknown_rule_or_value_is_refused_with_the_known_ones() {
        let kernel = Kernel::newest();
        let error = kernel.with_rule("realease", "Csd").unwrap_err().to_string();
        assert!(error.contains("no rule 'realease'") && error.contains(" release,"), "{error}");
        let error = kernel.with_rule("release", "Soon\n").unwrap_err().to_string();
        assert_eq!(error, "rule release has no value 'Soon\\n': give one of Sync, Csd, CsdAll");
    }
}
