//! Serialized form of a limit: its three numbers, checked again when they are read.

use cpumax_limit::Limit;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
struct Numbers {
    /// `None`: unlimited.
    quota_ns: Option<u64>,
    period_ns: u64,
    burst_ns: u64,
}

pub(crate) fn serialize<S: Serializer>(limit: &Limit, to: S) -> Result<S::Ok, S::Error> {
    let (quota_ns, period_ns, burst_ns) = (limit.quota_ns(), limit.period_ns(), limit.burst_ns());
    Numbers { quota_ns, period_ns, burst_ns }.serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Limit, D::Error> {
    let Numbers { quota_ns, period_ns, burst_ns } = Numbers::deserialize(from)?;
    Limit::new(quota_ns, period_ns, burst_ns).map_err(D::Error::custom)
}
