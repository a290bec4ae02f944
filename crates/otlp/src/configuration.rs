//! Upstream's `TracingConfiguration`: where spans go, and how many of the traces that begin here.

use machinery::status::FieldError;
use serde::Deserialize;

/// Where a collector listens unless somebody says otherwise.
const ENDPOINT: &str = "localhost:4317";
const MOST: i32 = 1_000_000;

/// As the API server's file and the kubelet's configuration have it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Configuration {
    /// `host:port`, or a target of gRPC: `dns:///host:port`, `unix:///path`.
    pub endpoint: Option<String>,
    /// Of a million traces that begin here so many are exported; none by default. Who has a parent does as that says.
    pub sampling_rate_per_million: Option<i32>,
}

impl Configuration {
    /// What is wrong with it, in upstream's words. `path` is where it stands in its file.
    pub fn check(&self, path: &str) -> Vec<FieldError> {
        let at = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
        let mut errors = Vec::new();
        if let Some(rate) = self.sampling_rate_per_million {
            let field = at("samplingRatePerMillion");
            if rate < 0 {
                errors.push(FieldError::invalid(&field, rate, "sampling rate must be positive"));
            }
            if rate > MOST {
                let why = "sampling rate per million must be less than or equal to one million";
                errors.push(FieldError::invalid(&field, rate, why));
            }
        }
        if let Some(endpoint) = &self.endpoint
            && let Err(why) = scheme(endpoint)
        {
            errors.push(FieldError::invalid(at("endpoint"), endpoint.as_str(), why));
        }
        errors
    }

    pub(crate) fn rate(&self) -> hops::Rate {
        let rate = u32::try_from(self.sampling_rate_per_million.unwrap_or_default()).unwrap_or_default();
        hops::Rate::per_million(rate)
    }

    /// The address to dial.
    pub(crate) fn address(&self) -> String {
        let endpoint = self.endpoint.as_deref().filter(|endpoint| !endpoint.is_empty()).unwrap_or(ENDPOINT);
        if let Some(path) = endpoint.strip_prefix("unix:") {
            return format!("unix://{}", path.trim_start_matches("//"));
        }
        // Who resolves the name is not ours to choose.
        let target = endpoint.strip_prefix("dns:").map_or(endpoint, |rest| rest.rsplit('/').next().unwrap_or(rest));
        format!("http://{target}")
    }
}

/// gRPC's names for kinds of targets; nothing means DNS.
fn scheme(endpoint: &str) -> Result<(), String> {
    let Some((scheme, _)) = endpoint.split_once("//") else { return Ok(()) };
    let Some(scheme) = scheme.strip_suffix(':') else {
        return Err("first path segment in URL cannot contain colon".to_owned());
    };
    match scheme {
        "dns" | "unix" => Ok(()),
        "unix-abstract" => Err("unix-abstract is not supported here; give a path in the file system".to_owned()),
        _ => Err(format!(
            "unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(endpoint: &str, rate: i32) -> Configuration {
        Configuration { endpoint: Some(endpoint.to_owned()), sampling_rate_per_million: Some(rate) }
    }

    #[test]
    fn what_cannot_be_used_is_told_in_upstreams_words() {
        for (configuration, expect) in [
            (with("localhost:4317", 12_378), ""),
            (with("dns://collector.example:4317", 0), ""),
            (with("unix:///run/collector.sock", 1_000_000), ""),
            (with("a", -1), "tracing.samplingRatePerMillion: Invalid value: -1: sampling rate must be positive"),
            (
                with("a", 1_000_001),
                "tracing.samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million",
            ),
            (
                with("http://localhost:4317", 1),
                "tracing.endpoint: Invalid value: \"http://localhost:4317\": unsupported scheme: http.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md",
            ),
        ] {
            let told: Vec<String> = configuration.check("tracing").iter().map(ToString::to_string).collect();
            assert_eq!(told.join("; "), expect);
        }
    }

    #[test]
    fn addresses_are_those_of_grpc() {
        for (endpoint, address) in [
            ("", "http://localhost:4317"),
            ("collector:4318", "http://collector:4318"),
            ("dns:///collector:4318", "http://collector:4318"),
            ("dns://collector:4318", "http://collector:4318"),
            ("unix:///run/c.sock", "unix:///run/c.sock"),
            ("unix:/run/c.sock", "unix:///run/c.sock"),
        ] {
            assert_eq!(with(endpoint, 0).address(), address);
        }
        assert_eq!(Configuration::default().address(), "http://localhost:4317");
    }
}
