//! `kubectl`: the same commands with ours and, where `--peer-kubectl` names one, with another kubectl, one after the other on the same server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::Server;

use crate::report::Line;
use crate::server::ALONE;
use crate::{Failure, Options, Target, binary, pods, start};

/// How often each quick command runs; the figure is the median.
const RUNS: usize = 15;
/// Objects that are applied.
const APPLIED: usize = 500;
/// Pods that are listed.
const LISTED: usize = 10_000;

/// One of the programs, with a home of its own.
struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
}

/// What a command took.
struct Took {
    time: Duration,
    megabytes: f64,
}

impl Kubectl {
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace()).env("HOME", &self.home).env("KUBECONFIG", &self.kubeconfig);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn run(&self, line: &str) -> Result<Took, Failure> {
        let begun = Instant::now();
        let mut child = self.command(line).spawn()?;
        let status = format!("/proc/{}/status", child.id());
        let mut megabytes = 0.0;
        let ended = loop {
            // Its peak as the kernel counts it: the last look before its end has it.
            if let Some(peak) = std::fs::read_to_string(&status).ok().and_then(|text| peak(&text)) {
                megabytes = peak;
            }
            match child.try_wait()? {
                Some(ended) => break ended,
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        if !ended.success() {
            return Err(format!("{line}: {ended}").into());
        }
        Ok(Took { time: begun.elapsed(), megabytes })
    }

    /// The median time of a command in milliseconds; `before` runs each time before it.
    fn median(&self, line: &str, before: impl Fn(&Self)) -> Result<f64, Failure> {
        let mut times = Vec::new();
        for _ in 0..RUNS {
            before(self);
            times.push(self.run(line)?.time);
        }
        times.sort_unstable();
        Ok(times[RUNS / 2].as_secs_f64() * 1e3)
    }

    /// Nothing is remembered of what the server serves.
    fn forget(&self) {
        let _ = std::fs::remove_dir_all(self.home.join(".kube/cache"));
    }
}

fn peak(status: &str) -> Option<f64> {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}

/// A line with our figure and the other's, and how many times better ours should be.
fn compare(bench: &str, unit: &str, ours: f64, peer: Option<f64>, times: f64) {
    let line = Line::new(bench).figure(unit, ours);
    match peer {
        None => line.print(),
        Some(peer) => {
            let line = line.figure(&format!("peer_{unit}"), peer).figure("times", peer / ours);
            line.at_least("times", times).print();
        }
    }
}

fn objects(file: &Path) -> Result<(), Failure> {
    let object = |at: usize| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("bench-{at}")}, "data": {"key": "value"}}).to_string()
    };
    Ok(std::fs::write(file, (0..APPLIED).map(object).collect::<Vec<_>>().join("\n---\n"))?)
}

pub async fn run(options: &Options) -> Result<(), Failure> {
    let mut server = Server::start(start(&ALONE)).await;
    let target = Target::new(&server.kubeconfig(), server.id(), options.scale)?;
    pods::space(target.client(), "kubectl-some").await?;
    pods::fill(&target, "kubectl-some", 100).await?;
    pods::space(target.client(), "kubectl-many").await?;
    pods::fill(&target, "kubectl-many", ((LISTED as f64 * target.scale) as usize).max(100)).await?;
    let directory = tempfile::tempdir()?;
    let made = |name: &str, program: PathBuf| -> Result<Kubectl, Failure> {
        let home = directory.path().join(name);
        std::fs::create_dir_all(&home)?;
        Ok(Kubectl { program, home, kubeconfig: server.kubeconfig() })
    };
    // The binary acts as kubectl where it is called that.
    let link = directory.path().join("kubectl");
    std::os::unix::fs::symlink(binary(), &link)?;
    let ours = made("ours", link)?;
    let peer = options.peer_kubectl.clone().map(|program| made("peer", program)).transpose()?;
    let each = |measure: &dyn Fn(&Kubectl) -> Result<f64, Failure>| -> Result<(f64, Option<f64>), Failure> {
        Ok((measure(&ours)?, peer.as_ref().map(measure).transpose()?))
    };
    let (own, other) = each(&|kubectl| kubectl.median("version --client", |_| ()))?;
    let line = Line::new("kubectl_version").figure("ms", own).at_most("ms", 5.0);
    other.into_iter().fold(line, |line, other| line.figure("peer_ms", other)).print();
    each(&|kubectl| kubectl.run("get pods -n kubectl-some").map(|took| took.time.as_secs_f64()))?;
    let (own, other) = each(&|kubectl| kubectl.median("get pods -n kubectl-some", |_| ()))?;
    compare("kubectl_get_warm", "ms", own, other, 5.0);
    let (own, other) = each(&|kubectl| kubectl.median("get pods -n kubectl-some", Kubectl::forget))?;
    compare("kubectl_get_cold", "ms", own, other, 3.0);
    let file = directory.path().join("objects.yaml");
    objects(&file)?;
    let applied = |kubectl: &Kubectl| -> Result<f64, Failure> {
        let took = kubectl.run(&format!("apply -f {}", file.display()))?;
        kubectl.run(&format!("delete --wait=false -f {}", file.display()))?;
        Ok(took.time.as_secs_f64() * 1e3)
    };
    let (own, other) = each(&applied)?;
    compare("kubectl_apply_500", "ms", own, other, 3.0);
    let (own, other) = each(&|kubectl| kubectl.run("get pods -n kubectl-many").map(|took| took.megabytes))?;
    compare("kubectl_get_10000", "megabytes", own, other, 4.0);
    server.stop().await;
    Ok(())
}
