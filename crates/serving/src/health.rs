//! Probes of health: checks by name, all of them together, and how they came out so far.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use http::StatusCode;
use machinery::query::Query;
use parking_lot::Mutex;

use crate::answer::{Answer, text};

/// A check by name.
#[derive(Clone)]
pub struct Check {
    name: &'static str,
    run: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl Check {
    /// A check of this name; it says what is wrong, if anything is.
    pub fn new(name: &'static str, run: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { name, run: Arc::new(run) }
    }

    /// Whether requests are answered at all.
    pub fn ping() -> Self {
        Self::new("ping", || Ok(()))
    }
}

/// How a check came out, last and so far.
#[derive(Default, Clone, Copy)]
struct Outcomes {
    well: bool,
    successes: u64,
    errors: u64,
}

/// The probes of a component.
pub struct Probes {
    /// `healthz`, `livez` and `readyz`, each with its checks.
    probes: [(&'static str, Vec<Check>); 3],
    outcomes: Mutex<BTreeMap<(&'static str, &'static str), Outcomes>>,
}

impl Probes {
    /// A probe without checks is answered by [`Check::ping`].
    pub fn new(healthz: Vec<Check>, livez: Vec<Check>, readyz: Vec<Check>) -> Self {
        let some = |checks: Vec<Check>| if checks.is_empty() { vec![Check::ping()] } else { checks };
        let probes = [("healthz", some(healthz)), ("livez", some(livez)), ("readyz", some(readyz))];
        Self { probes, outcomes: Mutex::default() }
    }

    /// Answers a path below one of the probes; `None` where there is nothing.
    pub fn answer(&self, path: &str, query: &Query) -> Option<Answer> {
        let mut segments = path.trim_matches('/').splitn(2, '/');
        let asked = segments.next()?;
        let (probe, checks) = self.probes.iter().find(|(name, _)| *name == asked)?;
        let Some(name) = segments.next() else { return Some(self.whole(probe, checks, query)) };
        let check = checks.iter().find(|check| check.name == name)?;
        Some(match (check.run)() {
            Ok(()) => text(StatusCode::OK, "ok"),
            Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")),
        })
    }

    fn whole(&self, probe: &'static str, checks: &[Check], query: &Query) -> Answer {
        let mut excluded: Vec<&str> = query.all("exclude").collect();
        let (mut report, mut failed) = (String::new(), false);
        for check in checks {
            if excluded.contains(&check.name) {
                excluded.retain(|name| *name != check.name);
                let _ = writeln!(report, "[+]{} excluded: ok", check.name);
                continue;
            }
            let outcome = (check.run)();
            self.count(probe, check.name, outcome.is_ok());
            match outcome {
                Ok(()) => {
                    let _ = writeln!(report, "[+]{} ok", check.name);
                }
                Err(why) => {
                    // Anybody may ask, so the answer says no more than that.
                    tracing::warn!(probe, check = check.name, why, "a health check failed");
                    let _ = writeln!(report, "[-]{} failed: reason withheld", check.name);
                    failed = true;
                }
            }
        }
        if !excluded.is_empty() {
            excluded.sort_unstable();
            let quoted: Vec<_> = excluded.iter().map(|name| format!("{name:?}")).collect();
            let names = quoted.join(",");
            let _ = writeln!(report, "warn: some health checks cannot be excluded: no matches for {names}");
        }
        if failed {
            return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{report}{probe} check failed\n"));
        }
        match query.has("verbose") {
            true => text(StatusCode::OK, format!("{report}{probe} check passed\n")),
            false => text(StatusCode::OK, "ok"),
        }
    }

    fn count(&self, probe: &'static str, check: &'static str, well: bool) {
        let mut outcomes = self.outcomes.lock();
        let outcomes = outcomes.entry((check, probe)).or_default();
        outcomes.well = well;
        *(if well { &mut outcomes.successes } else { &mut outcomes.errors }) += 1;
    }

    /// `/metrics/slis`: how the checks came out.
    pub fn figures(&self) -> String {
        let outcomes = self.outcomes.lock();
        let mut out = String::new();
        let help = "[STABLE] This metric records the result of a single healthcheck.";
        let mut last = figures::samples(&mut out, "kubernetes_healthcheck", "gauge", help);
        for ((check, probe), outcomes) in outcomes.iter() {
            last.add(&[("name", check), ("type", probe)], f64::from(u8::from(outcomes.well)));
        }
        let help = "[STABLE] This metric records the results of all healthcheck.";
        let mut all = figures::samples(&mut out, "kubernetes_healthchecks_total", "counter", help);
        for ((check, probe), Outcomes { successes, errors, .. }) in outcomes.iter() {
            for (status, count) in [("error", errors), ("success", successes)].into_iter().filter(|(_, c)| **c > 0) {
                all.add(&[("name", check), ("status", status), ("type", probe)], *count as f64);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    async fn ask(probes: &Probes, path: &str, parameters: &[(&str, &str)]) -> Option<(u16, String)> {
        let mut query = Query::default();
        parameters.iter().for_each(|(name, value)| query.push(name, value));
        let answer = probes.answer(path, &query)?;
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.expect("a body at hand").to_bytes();
        Some((status, String::from_utf8(bytes.to_vec()).expect("text")))
    }

    #[tokio::test]
    async fn probes_are_answered_in_upstreams_words() {
        let synced = Check::new("sched-handler-sync", || Err("handlers are not fully synchronized".to_owned()));
        let probes = Probes::new(Vec::new(), Vec::new(), vec![Check::new("shutdown", || Ok(())), synced]);
        let answer = |status: u16, text: &str| Some((status, text.to_owned()));
        assert_eq!(ask(&probes, "/healthz", &[]).await, answer(200, "ok"));
        assert_eq!(ask(&probes, "/livez", &[("verbose", "")]).await, answer(200, "[+]ping ok\nlivez check passed\n"));
        let report = "[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n";
        assert_eq!(ask(&probes, "/readyz", &[]).await, answer(500, report));
        let only = [("exclude", "sched-handler-sync"), ("exclude", "other"), ("verbose", "")];
        let report = "[+]shutdown ok\n[+]sched-handler-sync excluded: ok\n\
                      warn: some health checks cannot be excluded: no matches for \"other\"\nreadyz check passed\n";
        assert_eq!(ask(&probes, "/readyz", &only).await, answer(200, report));
        let why = "internal server error: handlers are not fully synchronized\n";
        assert_eq!(ask(&probes, "/readyz/sched-handler-sync", &[]).await, answer(500, why));
        assert_eq!(ask(&probes, "/livez/ping", &[]).await, answer(200, "ok"));
        assert_eq!(ask(&probes, "/livez/other", &[]).await, None);
        assert_eq!(ask(&probes, "/other", &[]).await, None);
        let figures = probes.figures();
        for line in [
            "kubernetes_healthcheck{name=\"sched-handler-sync\",type=\"readyz\"} 0",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 1",
            "kubernetes_healthchecks_total{name=\"shutdown\",status=\"success\",type=\"readyz\"} 2",
        ] {
            assert!(figures.lines().any(|l| l == line), "{line} is not in\n{figures}");
        }
    }
}
