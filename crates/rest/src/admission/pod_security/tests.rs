//! The standards as tables: who is refused, by which version, in which words.

use super::*;
use serde_json::json;

fn told(level: Level, version: Version, metadata: &Value, spec: &Value) -> Vec<String> {
    violations(level, version, metadata, spec).iter().map(ToString::to_string).collect()
}

fn check(level: Level, spec: Value, expect: &[&str]) {
    assert_eq!(told(level, Version::LATEST, &json!({}), &spec), expect, "{spec}");
}

#[test]
fn pinned_versions_forbid_what_they_forbade_then() {
    let reasons = |level: Level, version: &str, metadata: Value, spec: Value| -> Vec<&'static str> {
        let version = Version::parse(version).expect("a version");
        violations(level, version, &metadata, &spec).iter().map(|violation| violation.reason).collect()
    };
    let (baseline, restricted) = (Level::Baseline, Level::Restricted);
    let sysctl = |name: &str| json!({"securityContext": {"sysctls": [{"name": name}]}});
    let check = |level, version: &str, spec: &Value, expect: &[&str]| {
        assert_eq!(reasons(level, version, json!({}), spec.clone()), expect, "{version} {spec}");
    };
    check(baseline, "v1.31", &sysctl("net.ipv4.tcp_rmem"), &["forbidden sysctls"]);
    check(baseline, "v1.32", &sysctl("net.ipv4.tcp_rmem"), &[]);
    check(baseline, "v1.26", &sysctl("net.ipv4.ip_local_reserved_ports"), &["forbidden sysctls"]);
    check(baseline, "v1.27", &sysctl("net.ipv4.ip_local_reserved_ports"), &[]);
    let probe = json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "10.0.0.1"}}}]});
    check(baseline, "v1.33", &probe, &[]);
    check(baseline, "v1.34", &probe, &["probe or lifecycle host"]);
    let label = json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}});
    check(baseline, "v1.30", &label, &["seLinuxOptions"]);
    check(baseline, "latest", &label, &[]);
    let plain = json!({"containers": [{"name": "c"}]});
    check(restricted, "v1.7", &plain, &["runAsNonRoot != true"]);
    check(restricted, "v1.18", &plain, &["allowPrivilegeEscalation != false", "runAsNonRoot != true"]);
    check(
        restricted,
        "v1.21",
        &plain,
        &["allowPrivilegeEscalation != false", "runAsNonRoot != true", "seccompProfile"],
    );
    let windows =
        json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}, "containers": [{"name": "c"}]});
    check(
        restricted,
        "v1.24",
        &windows,
        &["allowPrivilegeEscalation != false", "unrestricted capabilities", "seccompProfile"],
    );
    check(restricted, "v1.25", &windows, &[]);
    let root = json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]});
    check(restricted, "v1.22", &root, &[]);
    check(restricted, "v1.23", &root, &["runAsUser=0"]);
    check(baseline, "v1.36", &sysctl("net.ipv4.tcp_notsent_lowat"), &["forbidden sysctls"]);
    check(baseline, "v1.37", &sysctl("net.ipv4.tcp_notsent_lowat"), &[]);
    let unmasked = json!({"hostUsers": false, "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "Localhost"}},
        "containers": [{"name": "c", "securityContext": {"procMount": "Unmasked", "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}}}]});
    check(baseline, "v1.34", &unmasked, &["procMount"]);
    check(baseline, "v1.35", &unmasked, &[]);
    check(restricted, "v1.34", &unmasked, &["procMount", "runAsNonRoot != true", "runAsUser=0"]);
    check(restricted, "v1.35", &unmasked, &["procMount"]);
    let old = json!({"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}});
    assert_eq!(reasons(baseline, "v1.18", old.clone(), plain.clone()), ["seccompProfile"]);
    assert_eq!(reasons(baseline, "v1.19", old, plain), Vec::<&str>::new());
    for (text, expect) in
        [("latest", true), ("v1.37", true), ("1.37", false), ("v1.", false), ("v1.07", false), ("v2.1", false)]
    {
        assert_eq!(Version::parse(text).is_some(), expect, "{text}");
    }
}

#[test]
fn a_plain_pod_is_baseline_and_not_restricted() {
    let plain = json!({"containers": [{"name": "c"}]});
    check(Level::Privileged, json!({"hostNetwork": true}), &[]);
    check(Level::Baseline, plain.clone(), &[]);
    check(
        Level::Restricted,
        plain,
        &[
            r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)"#,
            r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"])"#,
            r#"runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)"#,
            r#"seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
        ],
    );
}

#[test]
fn a_hardened_pod_is_restricted() {
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let spec = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "securityContext": context}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    check(Level::Restricted, spec, &[]);
}

#[test]
fn baseline_refuses_known_escalations() {
    let container = |context: Value| json!({"containers": [{"name": "c", "securityContext": context}]});
    check(
        Level::Baseline,
        json!({"hostNetwork": true, "hostPID": true}),
        &["host namespaces (hostNetwork=true, hostPID=true)"],
    );
    check(
        Level::Baseline,
        container(json!({"privileged": true})),
        &[r#"privileged (container "c" must not set securityContext.privileged=true)"#],
    );
    check(
        Level::Baseline,
        container(json!({"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}})),
        &[
            r#"non-default capabilities (container "c" must not include "SYS_ADMIN" in securityContext.capabilities.add)"#,
        ],
    );
    check(
        Level::Baseline,
        json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
        &[r#"hostPath volumes (volume "v")"#],
    );
    check(
        Level::Baseline,
        json!({"containers": [{"name": "a", "ports": [{"hostPort": 80}]}, {"name": "b", "ports": [{"hostPort": 443}]}]}),
        &[r#"hostPort (containers "a", "b" use hostPorts 443, 80)"#],
    );
    check(
        Level::Baseline,
        json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}),
        &["forbidden sysctls (kernel.msgmax)"],
    );
    check(
        Level::Baseline,
        json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        &[r#"seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#],
    );
    check(
        Level::Baseline,
        container(json!({"procMount": "Unmasked"})),
        &[r#"procMount (container "c" must not set securityContext.procMount to "Unmasked")"#],
    );
    // Ephemeral and init containers are no way around.
    check(
        Level::Baseline,
        json!({"ephemeralContainers": [{"name": "d", "securityContext": {"privileged": true}}]}),
        &[r#"privileged (container "d" must not set securityContext.privileged=true)"#],
    );
    check(
        Level::Restricted,
        json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
        &[r#"restricted volume types (volume "v" uses restricted volume type "hostPath")"#],
    );
}

#[test]
fn the_checks_of_baseline_speak_first() {
    let spec = json!({"hostNetwork": true, "containers": [{"name": "c", "securityContext": {"privileged": true}}],
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}]});
    let reasons: Vec<&str> = violations(Level::Restricted, Version::LATEST, &json!({}), &spec)
        .iter()
        .map(|violation| violation.reason)
        .collect();
    assert_eq!(
        reasons,
        [
            "host namespaces",
            "privileged",
            "allowPrivilegeEscalation != false",
            "unrestricted capabilities",
            "restricted volume types",
            "runAsNonRoot != true",
            "seccompProfile"
        ]
    );
}

#[test]
fn profiles_probes_and_users_are_told_in_upstreams_words() {
    let profile = |kind: &str| json!({"appArmorProfile": {"type": kind}});
    check(
        Level::Baseline,
        json!({"securityContext": profile("Unconfined"), "containers": [{"name": "a", "securityContext": profile("Other")}]}),
        &[
            r#"forbidden AppArmor profiles (pod and container "a" must not set AppArmor profile type to "Other", "Unconfined")"#,
        ],
    );
    let metadata = json!({"annotations": {"container.apparmor.security.beta.kubernetes.io/a": "unconfined",
        "container.apparmor.security.beta.kubernetes.io/b": "runtime/default"}});
    assert_eq!(
        told(Level::Baseline, Version::LATEST, &metadata, &json!({})),
        [
            r#"forbidden AppArmor profile (annotation must not set AppArmor profile type to "container.apparmor.security.beta.kubernetes.io/a="unconfined"")"#
        ]
    );
    check(
        Level::Baseline,
        json!({"containers": [{"name": "b", "livenessProbe": {"httpGet": {"host": "127.0.0.1"}}},
            {"name": "a", "lifecycle": {"preStop": {"tcpSocket": {"host": "10.0.0.1"}}}}]}),
        &[r#"probe or lifecycle host (containers "a", "b" use probe or lifecycle hosts "10.0.0.1", "127.0.0.1")"#],
    );
    check(
        Level::Baseline,
        json!({"securityContext": {"seLinuxOptions": {"user": "u", "type": "x_t"}},
            "containers": [{"name": "c", "securityContext": {"seLinuxOptions": {"role": "r", "type": "container_t"}}}]}),
        &[
            r#"seLinuxOptions (pod and container "c" set forbidden securityContext.seLinuxOptions: type "x_t"; user may not be set; role may not be set)"#,
        ],
    );
    check(
        Level::Baseline,
        json!({"securityContext": {"windowsOptions": {"hostProcess": true}},
            "containers": [{"name": "c", "securityContext": {"windowsOptions": {"hostProcess": true}}}]}),
        &[r#"hostProcess (pod and container "c" must not set securityContext.windowsOptions.hostProcess=true)"#],
    );
    let hardened = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let with = |changes: Value| {
        let mut context = hardened.clone();
        for (key, change) in changes.as_object().expect("changes") {
            context[key] = change.clone();
        }
        context
    };
    check(
        Level::Restricted,
        json!({"securityContext": {"runAsNonRoot": false, "runAsUser": 0, "seccompProfile": {"type": "Unconfined"}}, "containers": [
            {"name": "a", "securityContext": with(json!({"runAsNonRoot": false, "runAsUser": 0}))},
            {"name": "b", "securityContext": with(json!({"capabilities": {"add": ["NET_RAW", "CHOWN"]}}))}]}),
        &[
            r#"unrestricted capabilities (container "b" must set securityContext.capabilities.drop=["ALL"]; container "b" must not include "CHOWN", "NET_RAW" in securityContext.capabilities.add)"#,
            r#"runAsNonRoot != true (pod and container "a" must not set securityContext.runAsNonRoot=false)"#,
            r#"runAsUser=0 (pod and container "a" must not set runAsUser=0)"#,
            r#"seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#,
        ],
    );
}
