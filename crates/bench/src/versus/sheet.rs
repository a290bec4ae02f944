//! The figures of both sides, as JSON lines while they come and as a table at the end.

use std::path::Path;

use tokio::process::Command;

use super::Side;
use crate::report::Line;
use crate::{Failure, Options, binary};

/// Where the table goes in a Markdown file: between these two lines.
const FROM: &str = "<!-- like with like: written by `make bench` -->";
const TO: &str = "<!-- like with like: end -->";

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    Cpu,
    CpuMicros,
    Rate,
    P50,
    P99,
    Writes,
    Peak,
    Resident,
    Private,
    Percent,
    Switches,
    Written,
}

impl Figure {
    /// Its name in a JSON line, in words, and its unit.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Cpu => ("cpu_ms", "server CPU", "ms"),
            Self::CpuMicros => ("cpu_us", "server CPU for an event", "µs"),
            Self::Rate => ("per_second", "rate", "/s"),
            Self::P50 => ("p50_ms", "p50", "ms"),
            Self::P99 => ("p99_ms", "p99", "ms"),
            Self::Writes => ("writes", "writes for a pod", ""),
            Self::Peak => ("peak_megabytes", "resident memory at its end", "MB"),
            Self::Resident => ("resident_megabytes", "resident memory", "MB"),
            Self::Private => ("private_megabytes", "private memory", "MB"),
            Self::Percent => ("percent_of_a_core", "of a core", "%"),
            Self::Switches => ("switches_per_second", "context switches", "/s"),
            Self::Written => ("bytes_per_second", "written to disk", "B/s"),
        }
    }

    /// How many times better `ours` is than `theirs`; below 1 it is worse.
    fn ratio(self, ours: f64, theirs: f64) -> f64 {
        if self == Self::Rate { ours / theirs } else { theirs / ours }
    }
}

/// One operation's figure of both sides.
struct Row {
    operation: String,
    title: String,
    figure: Figure,
    ours: Option<f64>,
    theirs: Option<f64>,
}

/// All figures of a run, in the order in which they came first.
#[derive(Default)]
pub struct Sheet(Vec<Row>);

impl Sheet {
    /// Takes figures of one operation, and prints them.
    pub fn add(&mut self, side: &Side, operation: &str, title: &str, figures: &[(Figure, f64)]) {
        let mut line = Line::new("versus").text("side", side.name()).text("operation", operation);
        for (figure, value) in figures {
            line = line.precise(figure.words().0, *value);
            self.put(side.is_ours(), operation, title, *figure, *value);
        }
        line.print();
    }

    fn put(&mut self, ours: bool, operation: &str, title: &str, figure: Figure, value: f64) {
        let at = self.0.iter().position(|row| row.operation == operation && row.figure == figure);
        let at = at.unwrap_or_else(|| {
            let (operation, title) = (operation.to_owned(), title.to_owned());
            self.0.push(Row { operation, title, figure, ours: None, theirs: None });
            self.0.len() - 1
        });
        let row = &mut self.0[at];
        *(if ours { &mut row.ours } else { &mut row.theirs }) = Some(value);
    }

    /// A line for each operation: how many times better ours is.
    pub fn print_ratios(&self) {
        let mut operations: Vec<&str> = self.0.iter().map(|row| row.operation.as_str()).collect();
        operations.dedup();
        for operation in operations {
            let mut line = Line::new("ratio").text("operation", operation);
            let mut any = false;
            for row in self.0.iter().filter(|row| row.operation == operation) {
                if let (Some(ours), Some(theirs)) = (row.ours, row.theirs) {
                    line = line.figure(row.figure.words().0, row.figure.ratio(ours, theirs));
                    any = true;
                }
            }
            if any {
                line.print();
            }
        }
    }

    /// Puts the table between the marks of a file.
    pub fn write(&self, file: &Path, setting: &Setting) -> Result<(), Failure> {
        let text = std::fs::read_to_string(file)?;
        Ok(std::fs::write(file, put_between(&text, &self.markdown(setting))?)?)
    }

    fn markdown(&self, setting: &Setting) -> String {
        let mut text = setting.words();
        text.push_str("\n| | Trireme | upstream | ratio |\n|---|---|---|---|\n");
        for row in &self.0 {
            let (_, words, unit) = row.figure.words();
            let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| with_unit(value, unit));
            let ratio = match (row.ours, row.theirs) {
                (Some(ours), Some(theirs)) => match row.figure.ratio(ours, theirs) {
                    ratio if !ratio.is_finite() => "–".to_owned(),
                    ratio if ratio < 1.0 => format!("**{}**", number(ratio)),
                    ratio => number(ratio),
                },
                _ => "–".to_owned(),
            };
            let (ours, theirs) = (shown(row.ours), shown(row.theirs));
            text.push_str(&format!("| {}: {words} | {ours} | {theirs} | {ratio} |\n", row.title));
        }
        text
    }
}

/// What ran, and on what.
pub struct Setting {
    machine: String,
    ours: String,
    upstream: Option<String>,
    scale: f64,
}

impl Setting {
    pub async fn find(options: &Options) -> Result<Self, Failure> {
        let upstream = match &options.peer_bin {
            None => None,
            Some(programs) => {
                let server = first_line(&programs.join("kube-apiserver"), "--version").await?;
                let own = programs.join("etcd");
                let etcd = first_line(if own.exists() { &own } else { Path::new("etcd") }, "--version").await?;
                Some(format!("{server} with {}", etcd.replace(" Version:", "")))
            }
        };
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let memory = std::fs::read_to_string("/proc/meminfo")?;
        let kilobytes: f64 = memory.split_whitespace().nth(1).ok_or("no memory")?.parse()?;
        let cores = std::thread::available_parallelism()?;
        Ok(Self {
            machine: format!("{cores} cores, {:.0} GiB, kernel {}", kilobytes / 1024.0 / 1024.0, kernel.trim()),
            ours: first_line(&binary(), "--version").await?,
            upstream,
            scale: options.scale,
        })
    }

    fn words(&self) -> String {
        let upstream =
            self.upstream.as_ref().map_or("no other side was given".to_owned(), |text| format!("upstream is {text}"));
        let scale =
            if self.scale == 1.0 { String::new() } else { format!(" Counts are {} times the usual ones.", self.scale) };
        format!(
            "Written by `make bench` on {}: {}, {upstream}.{scale} One run, stage by stage, one side after the other, each time on a fresh cluster; client and server share \
             the cores. The client is the `kube` crate for both: JSON, {} requests in flight over 4 connections of HTTP/2, a connection for each watcher. On both sides run the API server with \
             its store, durable, and all controllers; the scheduler where pods are bound, in the flood and idle, and not elsewhere; no kubelet and no proxy: nodes are hollow, \
             in a process that is counted to nobody. Upstream has its default flags, and a higher limit of requests for controllers and scheduler. CPU and memory are sums over all processes of a side; CPU of a request \
             includes what controllers do because of it. The ratio says how many times better ours is; below 1 it is worse.\n",
            self.machine,
            self.ours,
            super::outside::IN_FLIGHT,
        )
    }
}

async fn first_line(program: &Path, argument: &str) -> Result<String, Failure> {
    let said = Command::new(program).arg(argument).output().await?;
    Ok(String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().trim().to_owned())
}

/// The text with something else between its marks.
fn put_between(text: &str, what: &str) -> Result<String, Failure> {
    let (before, rest) = text.split_once(FROM).ok_or_else(|| format!("no line {FROM}"))?;
    let (_, after) = rest.split_once(TO).ok_or_else(|| format!("no line {TO} after the other"))?;
    Ok(format!("{before}{FROM}\n{}\n{TO}{after}", what.trim_end()))
}

fn with_unit(value: f64, unit: &str) -> String {
    let number = number(value);
    match unit {
        "" | "/s" => format!("{number}{unit}"),
        _ => format!("{number} {unit}"),
    }
}

/// Three digits that mean something, thousands apart.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m == 0.0 || m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) && digit.is_ascii_digit() {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_mean_something() {
        let cases = [
            (0.0, "0"),
            (0.0553, "0.055"),
            (0.61, "0.610"),
            (3.6, "3.60"),
            (17.26, "17.3"),
            (192.4, "192"),
            (2080.0, "2,080"),
            (1_234_567.0, "1,234,567"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_table_has_both_sides_and_says_who_is_worse() {
        let mut sheet = Sheet::default();
        sheet.put(true, "create", "create of a pod", Figure::Cpu, 0.5);
        sheet.put(true, "create", "create of a pod", Figure::Rate, 100.0);
        sheet.put(true, "idle", "idle", Figure::Percent, 0.1);
        sheet.put(false, "create", "create of a pod", Figure::Cpu, 3.0);
        sheet.put(false, "create", "create of a pod", Figure::Rate, 200.0);
        let setting = Setting { machine: "a machine".to_owned(), ours: "ours".to_owned(), upstream: None, scale: 1.0 };
        let rows: Vec<String> = sheet
            .markdown(&setting)
            .lines()
            .skip_while(|line| !line.starts_with('|'))
            .skip(2)
            .map(str::to_owned)
            .collect();
        assert_eq!(
            rows,
            [
                "| create of a pod: server CPU | 0.500 ms | 3.00 ms | 6.00 |",
                "| create of a pod: rate | 100/s | 200/s | **0.500** |",
                "| idle: of a core | 0.100 % | – | – |",
            ]
        );
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("before\n{FROM}\nold\n{TO}\nafter\n");
        let once = put_between(&text, "new\n").expect("marks");
        assert_eq!(once, format!("before\n{FROM}\nnew\n{TO}\nafter\n"));
        assert_eq!(put_between(&once, "new").expect("marks"), once);
        assert!(put_between("nothing", "new").is_err());
    }
}
