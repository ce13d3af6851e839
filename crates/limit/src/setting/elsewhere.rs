//! Limits in the notation of files and options of other systems: docker's `--cpus=0.5`, `NanoCpus`
//! and `--cpu-quota`, systemd's `CPUQuota=50%`, `limits.cpu: 500m` of Kubernetes, `cpus: 0.5` of
//! Compose. Each is translated to the grammar of [`Setting`] with its own meaning.

use super::amount::{no_unit, time_us};
use super::{Setting, SettingError};

/// Known names, in lower case and without `-` and `_`.
const NAMES: [&str; 11] = [
    "cpu.max",
    "cpus",
    "nanocpus",
    "cpuquota",
    "cpuperiod",
    "cpuquotaperiodsec",
    "cpuquotapersecusec",
    "cpuweight",
    "cpu",
    "limits.cpu",
    "resources.limits.cpu",
];

/// The name, in lower case without `-` and `_`, and the value without quotes, if the name is known.
fn known(given: &str) -> Option<(String, &str)> {
    let is_option = given.starts_with("--");
    let ends = |c: char| matches!(c, '=' | ':') || is_option && c.is_whitespace();
    let (name, value) = given.split_once(ends)?;
    let is_quote = |c: char| matches!(c, '"' | '\'') || c.is_whitespace();
    let name = name.trim_matches(is_quote).trim_start_matches("--");
    let name = name.replace(['-', '_'], "").to_ascii_lowercase();
    NAMES.contains(&name.as_str()).then(|| (name, value.trim_matches(is_quote)))
}

/// Whether it begins with a known name, so that its colon ends no path.
pub(super) fn is_known(given: &str) -> bool {
    known(given).is_some()
}

/// Translates a known name and its value to the grammar of [`Setting`]; `None` if the name is
/// unknown. An error for systemd's period, which has no quota, a quota below docker's least without
/// a unit, and nanoCPUs that are no number.
pub(super) fn translated(given: &str) -> Result<Option<String>, SettingError> {
    const NANO: u64 = 1_000_000_000;
    let Some((name, value)) = known(given) else { return Ok(None) };
    let is_number = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    Ok(Some(match name.as_str() {
        "cpus" if is_number => format!("{value}cpus"),
        "cpu.max" => format!("cpu.max={value}"),
        "nanocpus" => match value.parse::<u64>() {
            Ok(nano) => format!("{}.{:09}cpus", nano / NANO, nano % NANO),
            Err(_) => return Err(SettingError::NotALimit { text: given.to_owned() }),
        },
        // systemd: an empty value means no limit.
        "cpuquota" if value.is_empty() => "max".to_owned(),
        "cpuquota" if value.parse::<f64>().is_ok_and(|number| (0.0..1_000.0).contains(&number)) => {
            let texts = vec![format!("CPUQuota={value}%"), format!("{value}cpus")];
            let nothing = SettingError::NotALimit { text: given.to_owned() };
            return Err(no_unit(given, texts).unwrap_or(nothing));
        }
        // docker's is in us.
        "cpuquota" if is_number || value.starts_with('-') => format!("cpu.cfs_quota_us={value}"),
        // Two lines of a systemd unit as one text.
        "cpuquota" => match value.split_once(" CPUQuotaPeriodSec=") {
            Some((quota, period)) => format!("{quota}/{period}"),
            None => value.to_owned(),
        },
        // `systemctl show` prints the CPU time of a second.
        "cpuquotapersecusec" => match time_us(value) {
            Some(us) => format!("{}.{:04}%", us / 10_000, us % 10_000),
            None => value.to_owned(),
        },
        "cpuperiod" => format!("cpu.cfs_period_us={value}"),
        "cpuquotaperiodsec" => {
            let meant = format!("50%/{value}");
            let is_taken = meant.parse::<Setting>().is_ok();
            let meant = if is_taken { meant } else { "50%/10ms".to_owned() };
            return Err(SettingError::PeriodAlone { given: given.to_owned(), meant });
        }
        "cpuweight" => format!("cpu.weight={value}"),
        _ => value.to_owned(),
    }))
}
