//! A client of Prometheus' HTTP API, which Thanos, Mimir and `VictoriaMetrics` serve too. A range
//! selector in an instant query gives raw samples with their own times, where `query_range` gives
//! values at steps.
//!
//! API: <https://prometheus.io/docs/prometheus/latest/querying/api/>.

use cpumax_limit::{one_line, shown};
use cpumax_study::Error;
use serde::Deserialize;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use std::{env, fmt, fs};
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig};

/// The variable with a bearer token.
const TOKEN: &str = "CPUMAX_PROMETHEUS_TOKEN";
/// An answer has no more bytes, unpacked.
const ANSWER_MAX_BYTES: u64 = 256 << 20;
/// A Prometheus gives up after two minutes by default.
const ANSWERED_WITHIN: Duration = Duration::from_secs(130);
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// Letters shown of an answer that is not one of Prometheus.
const SHOWN: usize = 120;

/// A server with Prometheus' HTTP API.
///
/// ```
/// use cpumax_observed::counters::Prometheus;
///
/// let prometheus = Prometheus::at("https://me:secret@prometheus.example/select/0", None)?;
/// assert_eq!(prometheus.to_string(), "https://prometheus.example/select/0");
/// assert!(Prometheus::at("prometheus:9090", None).is_err());
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Prometheus {
    /// With user and password.
    url: String,
    shown: String,
    token: Option<String>,
    agent: Agent,
}

#[derive(Deserialize)]
struct Failed {
    error: String,
    #[serde(default, rename = "errorType")]
    kind: String,
}

impl Prometheus {
    /// The server with this URL, `http` or `https`, perhaps with user, password and a path before
    /// `/api/v1`. A bearer token is that of a file, or else of the variable
    /// `CPUMAX_PROMETHEUS_TOKEN`, if that is set. Nothing is asked yet.
    ///
    /// # Errors
    /// The URL or the token is malformed, or the file cannot be read.
    pub fn at(url: &str, token: Option<&Path>) -> Result<Prometheus, Error> {
        // A password is not repeated.
        let form = "--prometheus takes a URL, such as http://localhost:9090 or \
                    https://NAME:PASSWORD@HOST/PATH";
        let wrong = || Error::Question(form.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme));
        let (Some(scheme), Some(authority)) = (scheme, uri.authority()) else {
            return Err(wrong());
        };
        let host = authority.as_str().rsplit('@').next().unwrap_or_default();
        let path = uri.path().trim_end_matches('/');
        let read = |path: &Path| {
            fs::read_to_string(path).map_err(|source| Error::File { path: shown(path), source })
        };
        let token = token.map_or_else(|| Ok(env::var(TOKEN).ok()), |path| read(path).map(Some))?;
        let token = token.as_deref().map(str::trim).filter(|token| !token.is_empty());
        if token.is_some_and(|token| !token.chars().all(|c| c.is_ascii_graphic())) {
            return Err(Error::Question("the bearer token is not one line of text".to_owned()));
        }
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .timeout_global(Some(ANSWERED_WITHIN))
            .timeout_connect(Some(CONNECTED_WITHIN))
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls);
        Ok(Prometheus {
            url: format!("{scheme}://{authority}{path}"),
            shown: format!("{scheme}://{host}{path}"),
            token: token.map(|token| format!("Bearer {token}")),
            agent: config.build().into(),
        })
    }

    /// The JSON that answers a query; blocks up to two minutes.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or its answer is too large.
    pub(super) fn query(&self, query: &str) -> Result<Vec<u8>, Error> {
        let wrong = |what: &str| {
            let what = one_line(what).into_owned();
            Error::Question(format!("{self}: {what} (query {query})"))
        };
        let request = self.agent.get(format!("{}/api/v1/query", self.url)).query("query", query);
        // Thanos answers without the stores that it cannot reach, unless it is told not to.
        let request = request.query("partial_response", "false");
        let request = match &self.token {
            Some(token) => request.header("Authorization", token),
            None => request,
        };
        let mut response = request.call().map_err(|error| wrong(&error.to_string()))?;
        let mut answer = Vec::new();
        let mut body = response.body_mut().as_reader().take(ANSWER_MAX_BYTES);
        body.read_to_end(&mut answer).map_err(|error| wrong(&error.to_string()))?;
        if answer.len() as u64 == ANSWER_MAX_BYTES {
            return Err(wrong(
                "its answer has more than 256 MiB: choose fewer containers by --label, or a \
                 shorter time by --since",
            ));
        }
        let status = response.status();
        if status.is_success() {
            return Ok(answer);
        }
        let told = serde_json::from_slice::<Failed>(&answer).map_or_else(
            |_| {
                let text = String::from_utf8_lossy(&answer);
                let location = response.headers().get("location");
                let location = location.and_then(|to| to.to_str().ok());
                let text = location.unwrap_or(text.trim());
                text.chars().take(SHOWN).collect()
            },
            |failed| format!("{}: {}", failed.kind, failed.error),
        );
        Err(wrong(&format!("it answers {status}: {told}")))
    }
}

impl fmt::Display for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}
