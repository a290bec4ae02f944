//! How a container is started, watched, restarted and stopped: probes, handlers, signals.

use machinery::names;

use crate::checks::{At, Errors};

/// When a single container is started again, whatever the pod says.
pub fn restart_rules(container: &At<'_, '_>, init: bool, errors: &mut Errors) {
    let policy = container.at("restartPolicy");
    let rules = container.at("restartPolicyRules");
    if policy.is_set() {
        errors.one_of(&policy, &["Always", "Never", "OnFailure"]);
    } else if !rules.is_empty() {
        errors.required(&policy, "must specify restartPolicy when restart rules are used");
        // Upstream goes on with the rules of ordinary containers only.
        if init {
            return;
        }
    }
    if rules.len() > 20 {
        errors.too_many(&rules, 20);
    }
    for rule in rules.items() {
        errors.one_of(&rule.at("action"), &["Restart", "RestartAllContainers"]);
        let codes = rule.at("exitCodes");
        if !codes.is_set() {
            errors.required(&codes, "must be specified");
            continue;
        }
        errors.one_of(&codes.at("operator"), &["In", "NotIn"]);
        if codes.at("values").len() > 255 {
            errors.too_many(&codes.at("values"), 255);
        }
    }
}

pub fn lifecycle(container: &At<'_, '_>, spec: &At<'_, '_>, errors: &mut Errors) {
    let lifecycle = container.at("lifecycle");
    let grace = spec.at("terminationGracePeriodSeconds").int();
    for hook in ["postStart", "preStop"] {
        let hook = lifecycle.at(hook);
        if hook.is_set() {
            handler(&hook, &["exec", "httpGet", "tcpSocket", "sleep"], grace, errors);
        }
    }
    let signal = lifecycle.at("stopSignal");
    if signal.is_set() {
        match spec.text_at("os.name") {
            "windows" => errors.one_of(&signal, &["SIGKILL", "SIGTERM"]),
            "linux" => {
                if !is_signal(signal.text()) {
                    let all: Vec<String> = signals().collect();
                    errors.not_supported(&signal, &all.iter().map(String::as_str).collect::<Vec<_>>());
                }
            }
            _ => errors.forbidden(&signal, "may not be set for containers with empty `spec.os.name`"),
        }
    }
}

fn is_signal(name: &str) -> bool {
    signals().any(|signal| signal == name)
}

/// The signals of Linux, sorted.
fn signals() -> impl Iterator<Item = String> {
    const NAMED: [&str; 34] = [
        "SIGABRT",
        "SIGALRM",
        "SIGBUS",
        "SIGCHLD",
        "SIGCLD",
        "SIGCONT",
        "SIGFPE",
        "SIGHUP",
        "SIGILL",
        "SIGINT",
        "SIGIO",
        "SIGIOT",
        "SIGKILL",
        "SIGPIPE",
        "SIGPOLL",
        "SIGPROF",
        "SIGPWR",
        "SIGQUIT",
        "SIGSEGV",
        "SIGSTKFLT",
        "SIGSTOP",
        "SIGSYS",
        "SIGTERM",
        "SIGTRAP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGUSR1",
        "SIGUSR2",
        "SIGVTALRM",
        "SIGWINCH",
        "SIGXCPU",
        "SIGXFSZ",
    ];
    let real = ["SIGRTMAX".to_owned(), "SIGRTMIN".to_owned()];
    let below = (1..=14).map(|by| format!("SIGRTMAX-{by}"));
    let above = (1..=15).map(|by| format!("SIGRTMIN+{by}"));
    let mut all: Vec<String> =
        NAMED.iter().map(|name| (*name).to_owned()).chain(real).chain(below).chain(above).collect();
    all.sort_unstable();
    all.into_iter()
}

pub fn probes(container: &At<'_, '_>, errors: &mut Errors) {
    const HANDLERS: [&str; 4] = ["exec", "httpGet", "tcpSocket", "grpc"];
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.at(kind);
        if !probe.is_set() {
            continue;
        }
        handler(&probe, &HANDLERS, None, errors);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errors.not_negative(&probe.at(field));
        }
        let grace = probe.at("terminationGracePeriodSeconds");
        if grace.int().is_some_and(|seconds| seconds <= 0) {
            errors.invalid(&grace, "must be greater than 0");
        }
        if kind == "readinessProbe" {
            if grace.is_set() {
                errors.invalid(&grace, "must not be set for readinessProbes");
            }
        } else if probe.at("successThreshold").int().unwrap_or(0) != 1 {
            errors.invalid_int(&probe.at("successThreshold"), "must be 1");
        }
    }
}

/// One of several ways to ask or tell a container something.
fn handler(at: &At<'_, '_>, kinds: &[&str], grace: Option<i64>, errors: &mut Errors) {
    let mut found = 0;
    for kind in kinds {
        let action = at.at(kind);
        if !action.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            errors.forbidden(&action, "may not specify more than 1 handler type");
            continue;
        }
        match *kind {
            "exec" => {
                if action.at("command").is_empty() {
                    errors.required(&action.at("command"), "");
                }
            }
            "httpGet" => http_get(&action, errors),
            "tcpSocket" => errors.port(&action.at("port")),
            "grpc" => {
                errors.port(&action.at("port"));
                errors.one_of_if_set(&action.at("mode"), &["Plaintext", "TLS"]);
            }
            _ => {
                let seconds = action.at("seconds").int().unwrap_or(0);
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid_value(&action, seconds, detail);
                }
            }
        }
    }
    if found == 0 {
        errors.required(at, "must specify a handler type");
    }
}

fn http_get(at: &At<'_, '_>, errors: &mut Errors) {
    errors.required_text(&at.at("path"));
    errors.port(&at.at("port"));
    errors.one_of(&at.at("scheme"), &["HTTP", "HTTPS"]);
    let headers = at.at("httpHeaders");
    for header in headers.items() {
        let name = header.text_at("name");
        for problem in names::is_http_header_name(name) {
            errors.invalid_value(&headers, name, problem);
        }
    }
    let protocol = at.at("protocol");
    errors.one_of_if_set(&protocol, &["HTTP1", "HTTP2"]);
    if protocol.text() == "HTTP2" {
        if at.text_at("scheme") != "HTTP" {
            errors.invalid(&protocol, "is only supported with HTTP (H2C)");
        } else if !at.text_at("host").is_empty() {
            errors.invalid(&at.at("host"), "must be empty when `protocol` is \"HTTP2\"");
        }
    }
}
