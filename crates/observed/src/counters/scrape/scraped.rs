//! Containers of scrapes, or of samples of Prometheus: one of them, or all.

use super::super::labels::{Kind, Labels};
use super::super::{Observed, Prometheus, Served};
use super::own::{self, Metrics, Own};
use super::samples::Samples;
use super::{Scrape, Series, chosen, json, observed, read};
use cpumax_study::Error;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The labels of a container, and its counters or why they cannot be told.
pub type Container = (BTreeMap<String, String>, Result<Observed, Error>);

/// Counters of containers, and the service's own metrics, over some time.
#[derive(Debug, Clone)]
pub struct Scraped {
    held: Held,
    wanted: Vec<(String, String)>,
    metrics: Metrics,
}

#[derive(Debug, Clone)]
enum Held {
    /// In order of time.
    Scrapes(Vec<Scrape>, Option<Duration>),
    Samples(Samples),
}

/// Reads labels such as `pod=web-1`, quotes optional.
fn wanted(labels: &[String]) -> Result<Vec<(String, String)>, Error> {
    let pair = |text: &String| {
        let form = "give LABEL=VALUE, such as pod=web-1";
        Labels::parse_pair(text).ok_or_else(|| Error::Question(format!("--label '{text}': {form}")))
    };
    labels.iter().map(pair).collect()
}

impl Scraped {
    /// Reads containers whose labels have all of `labels` (`pod="web-1"`, quotes optional) from at
    /// least two scrapes in order of time, or from answers of Prometheus. `apart` is the time
    /// between scrapes without time stamps.
    ///
    /// # Errors
    /// A file cannot be read, or is neither.
    pub fn of_files(
        paths: &[impl AsRef<Path>],
        labels: &[String],
        apart: Option<Duration>,
        metrics: Metrics,
    ) -> Result<Scraped, Error> {
        let wanted = wanted(labels)?;
        let (mut scrapes, mut samples) = (Vec::new(), Samples::default());
        for path in paths {
            scrapes.append(&mut read(path.as_ref(), &metrics, &mut samples)?);
        }
        let held = match (samples.is_empty(), scrapes.is_empty()) {
            (true, _) => Held::Scrapes(scrapes, apart),
            (false, true) => Held::Samples(samples),
            (false, false) => {
                let what =
                    "these are both scrapes and answers of Prometheus: give one or the other";
                return Err(Error::Question(what.to_owned()));
            }
        };
        Ok(Scraped { held, wanted, metrics })
    }

    /// Asks a Prometheus for all samples of the last `since`.
    ///
    /// # Errors
    /// It cannot be reached, does not answer, or has no such container.
    pub fn of_prometheus(
        prometheus: &Prometheus,
        labels: &[String],
        since: Duration,
        metrics: Metrics,
    ) -> Result<Scraped, Error> {
        let wanted = wanted(labels)?;
        let held = Held::Samples(json::asked(prometheus, &wanted, since, &metrics)?);
        Ok(Scraped { held, wanted, metrics })
    }

    /// The only container with the wanted labels, and the metrics of its service.
    ///
    /// # Errors
    /// None or several have these labels, or their counters are impossible.
    pub fn one(&self) -> Result<(Observed, Served), Error> {
        match &self.held {
            Held::Scrapes(scrapes, _) if scrapes.len() < 2 => {
                Err(Error::Question(SINGLE.to_owned()))
            }
            Held::Scrapes(scrapes, _) => self.of(chosen(&scrapes[0], &self.wanted)?),
            Held::Samples(samples) => self.of(chosen(&samples.last(), &self.wanted)?),
        }
    }

    /// Every container with the wanted labels, by its labels. An error stands for one whose
    /// counters cannot be told.
    ///
    /// # Errors
    /// No container has these labels.
    pub fn all(&self) -> Result<Vec<Container>, Error> {
        let told;
        let all = match &self.held {
            Held::Scrapes(scrapes, _) => scrapes.first(),
            Held::Samples(samples) => {
                told = samples.last();
                Some(&told)
            }
        };
        let of =
            |labels: &Labels| (labels.pairs().cloned().collect(), self.of(labels).map(|t| t.0));
        let wanted = |(labels, series): &(&Labels, &Series)| {
            let is_one = labels.kind() == Kind::Container;
            is_one && labels.has_all(&self.wanted) && series.counts()
        };
        let found = all.iter().flat_map(|scrape| &scrape.containers).filter(wanted);
        let found: Vec<_> = found.map(|(labels, _)| of(labels)).collect();
        if found.is_empty() {
            return Err(Error::Question("no container has these labels".to_owned()));
        }
        Ok(found)
    }

    /// The counters of a container, by its labels at one time.
    fn of(&self, labels: &Labels) -> Result<(Observed, Served), Error> {
        let told;
        let (scrapes, apart) = match &self.held {
            Held::Scrapes(scrapes, apart) => (scrapes, *apart),
            Held::Samples(samples) => {
                told = samples.scrapes(labels, &self.metrics)?;
                (&told, None)
            }
        };
        if scrapes.len() < 2 {
            return Err(Error::Question(format!("{labels}: {SINGLE}")));
        }
        let observed = observed(scrapes, labels, &self.wanted, apart)?;
        let length_ns = observed.moments.last().map_or(0, |moment| moment.at_ns);
        let own: Vec<(&str, &Own)> = scrapes.iter().map(|s| (s.path.as_str(), &s.own)).collect();
        let served = own::served(&own, &self.metrics, length_ns)?;
        Ok((observed, served))
    }
}

const SINGLE: &str = "one scrape gives no rate: give at least two";
