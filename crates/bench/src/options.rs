//! The command line. What it names can be said in the environment as well, as `make bench` does.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::parts;

/// Measures this build of Trireme, and what stands beside it, as JSON lines.
///
/// Without options every part runs, one after the other; `trireme` is taken from the directory of this program. Machine, scale and
/// everything else that runs meanwhile matter: rates and latencies of two runs compare only on a quiet machine. Processor time for an operation,
/// which the part `versus` says of both sides, is what is left of that.
#[derive(Debug, Parser)]
#[command(name = "bench", version, after_long_help = parts::help(), max_term_width = 120)]
pub struct Options {
    /// Measure only these parts, separated by commas.
    #[arg(long, env = "BENCH_ONLY", value_name = "PART", value_delimiter = ',', hide_possible_values = true,
        value_parser = PossibleValuesParser::new(parts::names()))]
    pub only: Vec<String>,

    /// Make counts of objects and requests so many times what they are: 0.1 is a quick look.
    #[arg(long, env = "BENCH_SCALE", value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub scale: f64,

    /// A directory with upstream's kube-apiserver, kube-controller-manager, kube-scheduler and etcd (the last may be on PATH instead): parts
    /// `versus`, `servers` and `custom` start them and measure both sides in one run.
    #[arg(long, env = "PEER_BIN", value_name = "DIR")]
    pub peer_bin: Option<PathBuf>,

    /// Measure the API server of this kubeconfig instead of ours: parts `server`, `wire` and `custom`.
    #[arg(long, env = "PEER_KUBECONFIG", value_name = "FILE")]
    pub peer_kubeconfig: Option<PathBuf>,

    /// Another kubectl, measured beside ours in part `kubectl`.
    #[arg(long, env = "PEER_KUBECTL", value_name = "FILE")]
    pub peer_kubectl: Option<PathBuf>,

    /// Write the table of part `versus` between the two marks of this Markdown file.
    #[arg(long, env = "BENCH_MARKDOWN", value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    /// Workloads of part `scheduler`: `plain` through the API server, `alone_plain` without it, `alone` all of them without it.
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
}

impl Options {
    pub fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    /// So many, scaled, and never fewer than `least`.
    pub fn scaled(&self, count: usize, least: usize) -> usize {
        ((count as f64 * self.scale) as usize).max(least)
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err("a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_its_help_names_every_part() {
        Options::command().debug_assert();
        let help = Options::command().render_long_help().to_string();
        for part in parts::names() {
            assert!(help.contains(&format!("\n  {part} ")), "{part} in {help}");
        }
        for option in ["--only", "--scale", "--peer-bin", "--peer-kubeconfig", "--peer-kubectl", "--markdown"] {
            assert!(help.contains(option), "{option}");
        }
    }

    #[test]
    fn parts_are_chosen_by_name() {
        let chosen = Options::try_parse_from(["bench", "--only", "versus,node", "--scale", "0.1"]).expect("fine");
        assert!(chosen.wants("node") && chosen.wants("versus") && !chosen.wants("server"));
        assert_eq!((chosen.scaled(1_000, 10), chosen.scaled(50, 10)), (100, 10));
        for wrong in [["--only", "nonsense"], ["--scale", "0"], ["--scale", "much"]] {
            assert!(Options::try_parse_from(["bench"].into_iter().chain(wrong)).is_err(), "{wrong:?}");
        }
    }
}
