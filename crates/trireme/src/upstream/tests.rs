//! The table against upstream's names and against our options, and command lines as they are read.

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use super::*;
use crate::cli::Cli;

/// The commands that honour a component's flags.
fn command_of(whose: char) -> &'static str {
    match whose {
        'a' => "server",
        'c' => "controller-manager",
        's' => "scheduler",
        'k' => "agent",
        _ => "proxy",
    }
}

#[test]
fn every_flag_of_upstream_s_has_one_line() {
    let lines = include_str!("names.txt").lines().filter(|line| !line.starts_with('#'));
    let names = lines
        .filter_map(|line| line.split_once(": "))
        .flat_map(|(whose, names)| names.split(' ').map(move |name| format!("{whose} {name}")));
    let theirs: BTreeSet<String> = names.collect();
    let here: Vec<String> =
        flags().iter().flat_map(|row| row.whose.chars().map(move |whose| format!("{whose} {}", row.name))).collect();
    let once: BTreeSet<String> = here.iter().cloned().collect();
    assert_eq!(once.len(), here.len(), "a flag has two lines");
    assert_eq!(theirs.difference(&once).collect::<Vec<_>>(), Vec::<&String>::new(), "without a line");
    assert_eq!(once.difference(&theirs).collect::<Vec<_>>(), Vec::<&String>::new(), "not upstream's");
    assert!(theirs.len() > 560, "{}", theirs.len());
}

#[test]
fn what_is_honoured_is_an_option_and_everything_else_says_why() {
    let mut cli = Cli::command();
    cli.build();
    for row in flags() {
        for whose in row.whose.chars() {
            let command = cli.find_subcommand(command_of(whose)).expect("a command");
            match row.doing {
                Doing::Honoured("verbosity" | "help" | version::FLAG) | Doing::Gates => {}
                Doing::Honoured(ours) => assert!(option(command, ours).is_some(), "{whose} {} is no option", row.name),
                Doing::Field(..) => assert!(option(command, "kubelet-setting").is_some()),
                Doing::Nothing | Doing::Only(_) | Doing::Refused => {
                    assert!(!row.reason.is_empty(), "{} says no reason", row.name);
                }
            }
        }
    }
}

fn read(line: &str) -> Result<String, String> {
    let line = line.split_whitespace().map(OsString::from).collect();
    let translated = translated(&Cli::command(), line)?;
    let words: Vec<_> = translated.line.iter().map(|word| word.to_string_lossy()).collect();
    Ok(words.join(" "))
}

#[test]
fn lines_of_ours_stay_as_they_are() {
    for line in [
        "trireme server --data-dir /d --disable-agent",
        "trireme -v token create --server",
        "trireme agent --config /c --token x",
        "trireme kubectl get pods --v=3",
        "trireme server --help",
        "trireme version",
    ] {
        assert_eq!(read(line).as_deref(), Ok(line));
    }
}

#[test]
fn flags_of_upstream_s_become_ours_or_nothing() {
    for (line, want) in [
        ("trireme server --data-dir=/d --profiling=false --watch-cache", "trireme server --data-dir=/d"),
        ("trireme server --cert-dir=/c --data-dir=/d", "trireme server --cert-dir=/c --data-dir=/d"),
        ("trireme server --cert-dir /c", "trireme server --data-dir=/c --cert-dir /c"),
        ("trireme server --secure-port 7443", "trireme server --secure-port 7443"),
        ("trireme server --audit_log_path=-", "trireme server --audit-log-path=-"),
        ("trireme server --storage-media-type application/json --disable-agent=true", "trireme server --disable-agent"),
        ("trireme server --disable-agent=false --v=4", "trireme server -vv"),
        (
            "trireme agent --eviction-hard=memory.available<5%",
            "trireme agent --kubelet-setting=evictionHard={\"memory.available\":\"5%\"}",
        ),
        (
            "trireme agent --pods-per-core 3 --hostname-override n1",
            "trireme agent --kubelet-setting=podsPerCore=3 --node-name=n1",
        ),
        ("trireme proxy --proxy-mode=nftables --iptables-masquerade-bit 3", "trireme proxy --masquerade-bit=3"),
        (
            "/usr/bin/kube-apiserver -v 2 --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --allow-privileged=true",
            "trireme server --data-dir=/var/run/kubernetes --cert-dir=/var/run/kubernetes --disable-agent --disable-controller-manager \
             --disable-scheduler --disable-service-lb --disable-addons --store=etcd -v --etcd-servers=http://127.0.0.1:2379 \
             --https-port=6443",
        ),
        (
            "trireme kube-controller-manager --kubeconfig=/k --leader-elect",
            "trireme controller-manager --allocate-node-cidrs=false --kubeconfig=/k --leader-elect=true",
        ),
        ("kube-scheduler --config=/c --leader-elect=f", "trireme scheduler --config=/c --leader-elect=false"),
        ("trireme server --version=v1.37.0-custom", "trireme server --reported-version=v1.37.0-custom"),
        ("kube-scheduler --version=v1.37.0+x --config=/c --version=false", "trireme scheduler --config=/c"),
    ] {
        assert_eq!(read(line).as_deref(), Ok(want), "{line}");
    }
}

#[test]
fn what_cannot_be_taken_is_refused_by_name() {
    for (line, want) in [
        ("trireme server --watch-cache=false", "--watch-cache: \"false\" is not possible, only true: reads"),
        (
            "trireme server --etcd-servers-overrides /events#http://e",
            "--etcd-servers-overrides: all resources are in one store",
        ),
        ("trireme server --feature-gates=Nonsense=true", "--feature-gates: unrecognized feature gate: Nonsense"),
        ("trireme server --profiling=maybe", "invalid argument \"maybe\" for \"--profiling\" flag"),
        ("trireme proxy --proxy-mode ipvs", "--proxy-mode: \"ipvs\" is not possible"),
        ("trireme agent --eviction-hard memory", "--eviction-hard: malformed pair"),
        ("kube-apiserver --egress-selector-config-file", "flag needs an argument: --egress-selector-config-file"),
        ("kube-scheduler -v lots", "invalid argument \"lots\""),
        (
            "kube-apiserver --version=v1.36.0-custom",
            "invalid argument \"v1.36.0-custom\" for \"--version\" flag: version \"v1.36.0-custom\" must match major/minor/patch of default version",
        ),
        (
            "kube-apiserver --version=v1.37",
            "invalid argument \"v1.37\" for \"--version\" flag: could not parse \"v1.37\" as version",
        ),
    ] {
        let error = read(line).expect_err(line);
        assert!(error.starts_with(want), "{line}: {error}");
    }
}
