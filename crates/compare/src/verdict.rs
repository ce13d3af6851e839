//! The result of a comparison.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every number is within its tolerance; the ratio of the worst, 0 to 1.
    Agrees(f64),
    /// A number is beyond its tolerance; the ratio of the worst, above 1.
    Differs(f64),
    /// A world cannot run the workload, with the reason.
    Refused(String),
    /// A run did not end, with the reason.
    Failed(String),
}

impl Verdict {
    /// Whether a number is beyond its tolerance.
    pub fn differs(&self) -> bool {
        matches!(self, Verdict::Differs(_))
    }

    /// Difference over tolerance of the worst number, if both worlds ran it.
    pub fn ratio(&self) -> Option<f64> {
        match self {
            Verdict::Agrees(ratio) | Verdict::Differs(ratio) => Some(*ratio),
            Verdict::Refused(_) | Verdict::Failed(_) => None,
        }
    }
}
