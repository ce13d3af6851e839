//! Answers as tables, documents, histograms, traces and files, for people and their tools.
//!
//! This crate only turns results into text: it decides nothing and queries no terminal. Callers
//! give the width ([`Page`]), print the text, or pass a file for it ([`ResultFile`],
//! [`JsonArray`]).

mod advised;
mod apply;
mod chrome;
mod columns;
mod counted;
mod csv;
mod document;
pub mod escape;
mod file;
mod fitted;
mod fleet;
mod histogram;
mod html;
mod itself;
mod json;
mod kernels;
mod matrix;
mod page;
mod parquet;
mod predicted;
mod recording;
mod replay;
mod run;
mod scheduler;
pub mod stream;
mod study_files;
pub mod style;
mod table;
mod trace_files;
mod units;
mod varied;
mod verdict;
mod verified;
mod weighed;

pub use advised::{advice_sentence, advice_text, gaps_text};
pub use apply::{Chosen, Patch, Refused, System, advice_in_form, limit_in_form};
pub use columns::{Column, columns};
pub use counted::counters_text;
pub use csv::csv;
pub use document::{Made, document};
pub use file::{ResultFile, WriteError};
pub use fleet::fleet_text;
pub use histogram::histogram;
pub use html::{Named, STYLE as PAGE_STYLE, answer_lines, html};
pub use json::{JsonArray, json_text};
pub use kernels::{differing, generations, real_kernels, scenarios};
pub use matrix::{markdown, matrix, svg};
pub use page::Page;
pub use parquet::parquet;
pub use recording::{recording_heading, recording_text};
pub use replay::replay_text;
pub use run::{failed_expectations, runs_text};
pub use scheduler::{cpu_stat, groups_of_scheduler, openmetrics};
pub use study_files::StudyFiles;
pub use table::{Quota, groups, list, tasks};
pub use trace_files::{SameTraceFile, TraceFiles};
pub use units::{cpus, duration, percent};
pub use varied::{number_on_kernel, numbers_table};
pub use verdict::verdict;
pub use verified::verification_text;
pub use weighed::weights_table;
