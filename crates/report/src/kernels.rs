//! Lists of built-in scenarios, of versions of the model that behave alike, and of real kernels.

use crate::page::Page;
use crate::style::{DIM, styled};
use crate::table::list;
use cpumax_study::{
    builtin::Listed,
    kernels::{Alike, Differing, Here, Real, oldest_real},
};

/// A table of the built-in scenarios.
pub fn scenarios(all: Vec<Listed>, page: Page) -> String {
    let row = |Listed { scenario, shows, .. }| vec![scenario.to_owned(), shows];
    list(&["scenario", "shows"], all.into_iter().map(row), page.width())
}

/// A table of the versions that behave alike, and the changes between them.
pub fn generations(all: Vec<Alike>, page: Page) -> String {
    let row = |Alike { first, last, generation, changed }| {
        let versions = if first == last { first } else { format!("{first}..{last}") };
        vec![versions, generation, changed.to_owned()]
    };
    let header = ["kernels", "generation", "what changed"];
    let table = list(&header, all.into_iter().map(row), Some(page.text_width()));
    let note = format!(
        "A kernel with back-ports behaves like the version they come from: give that one. What is \
         told of kernels before {} was held against no real one.",
        oldest_real()
    );
    format!("{table}\n{}\n", styled(DIM, page.wrapped(&note)))
}

/// A table of the rules in which two kernels differ.
pub fn differing(rules: &[Differing], names: [&str; 2], page: Page) -> String {
    let row = |one: &Differing| vec![one.rule.to_owned(), one.first.clone(), one.second.clone()];
    list(&["rule of the model", names[0], names[1]], rules.iter().map(row), page.width())
}

/// A table of the real kernels, and the configuration of those that are present.
pub fn real_kernels(kernels: &[Real], page: Page) -> String {
    let header = ["kernel", "HZ", "preempts", "limits", "sched_ext", "nohz_full", "here"];
    let mut out = list(&header, kernels.iter().map(row), page.width());
    if kernels.iter().any(|kernel| kernel.here.is_none()) {
        let note = "`cpumax lab fetch` gets those that are not here.";
        out = format!("{out}\n{}\n", styled(DIM, note));
    }
    out
}

fn row(kernel: &Real) -> Vec<String> {
    let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
    let mut row = vec![kernel.name.to_owned()];
    match kernel.here.as_ref().and_then(|here| here.config.as_ref()) {
        None => row.extend(["-"; 5].map(str::to_owned)),
        Some(config) => row.extend([
            config.hz.to_string(),
            config.preempt.clone(),
            yes(config.cfs_bandwidth),
            yes(config.sched_ext),
            yes(config.no_hz_full),
        ]),
    }
    row.push(match &kernel.here {
        None => "no".to_owned(),
        Some(Here { release, .. }) => release.clone(),
    });
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_study::kernels::alike;

    #[test]
    fn a_version_that_is_alone_is_no_range() {
        let text = generations(alike(), Page::of(Some(100)));
        assert!(text.contains("\n4.19..5.0 ") && text.contains("\n6.18 "), "{text}");
    }

    #[test]
    fn what_is_not_here_is_told_with_how_to_get_it() {
        let here = Here {
            release: "6.12.1+deb13".to_owned(),
            package_version: "6.12.1-1".to_owned(),
            config: None,
        };
        let of = |here| Real { name: "6.12", version: "6.12", here };
        let text = real_kernels(&[of(None)], Page::of(None));
        assert!(text.contains("nohz_full  here\n") && text.contains("lab fetch"), "{text}");
        let text = real_kernels(&[of(Some(here))], Page::of(None));
        assert!(text.contains(" 6.12.1+deb13\n") && !text.contains("lab fetch"), "{text}");
    }
}
