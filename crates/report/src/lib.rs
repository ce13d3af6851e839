//! Answers as tables, documents, histograms, traces and files, for people and their tools.
//!
//! This crate only turns results into text: it decides nothing and queries no terminal. Callers
//! give the width ([`Page`]), print the text, or pass a file for it ([`ResultFile`],
//! [`JsonArray`]).

mod advised;
mod apply;
mod chrome;
mod counted;
mod csv;
mod document;
pub mod escape;
mod file;
mod fitted;
mod histogram;
mod html;
mod itself;
mod json;
mod kernels;
mod matrix;
mod page;
mod predicted;
mod recording;
mod replay;
mod run;
mod scheduler;
pub mod stream;
pub mod style;
mod table;
mod trace_files;
mod units;
mod varied;
mod verdict;
mod verified;
mod weighed;

pub use advised::{advice, advised, missing_of};
pub use apply::{System, applied, to_apply};
pub use chrome::ChromeTrace;
pub use counted::counted;
pub use csv::csv;
pub use document::{Made, document};
pub use file::{ResultFile, WriteError};
pub use histogram::histogram;
pub use html::{Named, answers, html};
pub use json::{JsonArray, OnePlace, leaves_room};
pub use kernels::{generations, real_kernels, scenarios};
pub use matrix::{markdown, matrix, svg};
pub use page::Page;
pub use recording::{described, inspected};
pub use replay::replayed;
pub use run::{failures, suite};
pub use scheduler::{cpu_stat, groups_of_scheduler, openmetrics};
pub use table::{Quota, groups, list, tasks};
pub use trace_files::{SameFile, TraceFiles};
pub use units::{cpus, duration, percent};
pub use varied::{shown_on, varied};
pub use verdict::verdict;
pub use verified::verified;
pub use weighed::weighed;
